"""State functions of rows over temperatures: worked numbers, identities, extremes, both ways of computing them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows_of import FLOATS, INF, KINDS, law, row_of

from logitd_kernels import DenseRows, RowFault, pick
from logitd_kernels.errors import ParameterError
from logitd_kernels.select import cpu, thermo
from logitd_kernels.thermo import analyze

BACKENDS = ("cpu", "torch", "reference")
LN2, LN3 = math.log(2), math.log(3)
WORKED = [  # logits, T, log Z, S
    ([1, 2, 3], 1, 3.4076059644444, 0.83239558184),
    ([1000, 1000, 999], 1, 1000.8619948041, 1.01735720756),
    ([-1000, -1001, -1002], 1, -999.59239403556, 0.83239558184),
    ([1e5, 1e5 - 1, 1e5 - 2], 1, 100000.40760596, 0.83239558184),
    ([0, -INF, 0], 1, 0.69314718056, 0.69314718056),
    ([-INF, 5, -INF], 1, 5, 0),
    ([10, 9.99], 0.01, 1000.313261687518, 0.582203108888),
    ([10, 9.99], 1e-4, 1e5, 0),
    ([3, 1, 0], 2, 1.9643687841, 0.905959256479),
    ([88, -88], 1, 88, 0),
    ([3.4e38, 0], 1, 3.4e38, 0),
    ([-3.4e38, -3.4e38], 1, -3.4e38, LN2),
    ([10, -10, 0], 1e30, LN3, LN3),
    ([0.5] * 32000, 0.5, 1 + 10.3734911818, 10.3734911818),
    ([0.5] * 128256, 2, 0.25 + 11.7617835456, 11.7617835456),
]


def analysed(row, temperatures, backend="torch", dtype=torch.float64, **asked):
    row = row if isinstance(row, torch.Tensor) else torch.tensor(row, dtype=dtype)
    [answer] = analyze(DenseRows(row[None]), temperatures, backend=pick(backend), **asked)
    return answer


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("logits", "temperature", "log_z", "entropy"), WORKED, ids=range(len(WORKED)))
def test_worked_numbers(logits, temperature, log_z, entropy, backend):
    sweep = analysed(logits, [temperature], backend).sweep
    assert sweep.log_z[0] == pytest.approx(log_z, rel=1e-11)
    assert sweep.entropy[0] == pytest.approx(entropy, abs=1e-10)
    assert sweep.free_energy[0] == pytest.approx(-temperature * log_z, rel=1e-11)
    assert sweep.effective_states[0] == pytest.approx(math.exp(entropy), rel=1e-10)


def test_small_entropies_keep_their_digits():
    sweep = analysed([10, 9.99], [1e-4], "cpu").sweep
    assert sweep.entropy[0] == pytest.approx(3.72e-42, rel=1e-3)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_formulas_in_float64(kind, dtype, backend):
    row = row_of(kind, 1025, dtype)
    temperatures = [0.3, 1.0, 40.0]
    sweep = analysed(row, temperatures, backend).sweep
    z = row.double().numpy()
    largest = z.max()
    for place, temperature in enumerate(temperatures):
        with np.errstate(over="ignore"):
            p = np.exp((z - largest) / temperature)
        held, p = z[p > 0] - largest, p[p > 0] / p.sum()
        mean = (p * held).sum()
        assert sweep.entropy[place] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-12)
        assert sweep.internal_energy[place] == pytest.approx(-largest - mean, abs=1e-14 * max(abs(largest), 1.0))
        variance = (p * ((held - mean) / temperature) ** 2).sum()
        assert sweep.heat_capacity[place] == pytest.approx(variance, rel=1e-9, abs=1e-300)
        assert sweep.max_probability[place] == pytest.approx(p.max(), rel=1e-13)


@law
@given(
    st.lists(st.floats(-1e4, 1e4) | st.just(-INF), min_size=1, max_size=600).filter(lambda row: max(row) > -INF),
    st.floats(-300, 30).map(lambda power: 10.0**power),
    st.sampled_from(["cpu", "torch"]),
)
def test_laws_of_one_temperature(logits, temperature, backend):
    sweep = analysed(logits, [temperature], backend).sweep
    largest, finite = max(logits), sum(x > -INF for x in logits)
    u, f, heat = sweep.internal_energy[0], sweep.free_energy[0], temperature * sweep.entropy[0]
    assert abs(f - (u - heat)) <= 1e-9 * max(abs(f), abs(u), heat)
    # Beside the ground state too, where a large offset would hide a wrong S.
    excess, free = u + largest, f + largest
    assert abs(free - (excess - heat)) <= 1e-9 * max(abs(free), excess, heat) + 1e-15 * abs(largest)
    assert 0 <= sweep.entropy[0] <= math.log(finite) + 1e-12
    assert sweep.heat_capacity[0] >= 0
    assert 1 / finite - 1e-15 <= sweep.max_probability[0] <= 1


@law
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=40), st.floats(0.2, 20))
def test_heat_capacity_is_the_slope_of_energy_and_of_entropy(logits, temperature):
    step = 1e-4 * temperature
    sweep = analysed(logits, [temperature - step, temperature, temperature + step]).sweep
    energy, entropy = sweep.internal_energy, sweep.entropy
    scale = 1e-6 * max(1.0, (max(logits) - min(logits)) / temperature) ** 2  # C and its curvature
    assert (energy[2] - energy[0]) / (2 * step) == pytest.approx(sweep.heat_capacity[1], abs=scale)
    assert temperature * (entropy[2] - entropy[0]) / (2 * step) == pytest.approx(sweep.heat_capacity[1], abs=scale)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_heat_capacity_of_a_distant_crowd_is_not_lost(backend):
    """The mass lies 1e6 below a maximum without weight: squares of that size cancel to nothing."""
    crowd = -1e6 + np.linspace(0, 1e-3, 200_000)
    row = torch.from_numpy(np.concatenate([crowd, [0.0]]))
    found = analysed(row, [1e8], backend).sweep.heat_capacity[0]
    z = row.numpy().astype(np.longdouble) / 1e8
    p = np.exp(z)
    p /= p.sum()
    assert found == pytest.approx(float((p * (z - (p * z).sum()) ** 2).sum()), rel=1e-9)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_extremes_do_not_overflow(backend):
    row = torch.tensor([3e38, -3e38, 0], dtype=torch.float32)
    sweep = analysed(row, [1e-300, 1.0, 1e30, 1e300], backend).sweep
    for name in ("free_energy", "internal_energy", "entropy", "heat_capacity", "effective_states", "max_probability"):
        assert np.isfinite(getattr(sweep, name)).all(), name
    assert np.isinf(sweep.log_z[0])  # 3e338
    assert sweep.entropy[[0, 3]] == pytest.approx([0, LN3], abs=1e-12)
    assert sweep.free_energy[0] == pytest.approx(-3e38)


@pytest.mark.parametrize("size", [1, 257, 5000])
@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_agrees_with_the_formulas(kind, dtype, size):
    row = row_of(kind, size, dtype)[None]
    place, largest = np.array([0]), np.array([float(row.double().max())])
    temperatures = np.array([[1e-3, 0.7, 1.0, 1e4]])
    compiled = thermo.compiled(row, place, largest, temperatures)
    portable = thermo.portable(row, place, largest, temperatures)
    for name in ("mass", "gap", "entropy", "variance"):
        assert compiled[name] == pytest.approx(portable[name], rel=1e-10, abs=1e-13), name


def test_compiled_has_the_same_bits_everywhere(restored_kernels):
    logits = torch.stack([row_of(kind, 4099) for kind in ("normal", "flat", "peaked", "mostly_masked", "high")])
    rows, temperatures = np.arange(5), np.tile(np.geomspace(0.01, 100, 7), (5, 1))
    largest = logits.double().max(1).values.numpy()
    bits = set()
    for isa in cpu.isas():
        for threads in (1, 3):
            cpu.use_isa(isa)
            cpu.set_threads(threads)
            bits.add(thermo.compiled(logits, rows, largest, temperatures).tobytes())
    alone = [thermo.compiled(logits, rows[i : i + 1], largest[i : i + 1], temperatures[i : i + 1]) for i in range(5)]
    bits.add(b"".join(one.tobytes() for one in alone))
    assert len(bits) == 1


@pytest.fixture
def restored_kernels():
    threads, isa = cpu.threads(), cpu.isa()
    yield
    cpu.set_threads(threads)
    cpu.use_isa(isa)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bad_row_fails_alone(backend):
    rows = torch.tensor([[1.0, 2], [math.nan, 0], [INF, 0], [-INF, -INF], [0, -INF]])
    good, nan, posinf, masked, half = analyze(DenseRows(rows), [0.5, 1], entropy=0.3, mass=0.5, backend=pick(backend))
    assert [(one.row, one.code, one.kind) for one in (nan, posinf, masked)] == [
        (1, "non_finite", "nan"),
        (2, "non_finite", "posinf"),
        (3, "all_masked", "all_neginf"),
    ]
    assert not isinstance(good, RowFault)
    assert half.sweep.entropy.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"temperatures": [1, 0]}, "temperatures[1]"),
        ({"temperatures": [math.nan]}, "temperatures[0]"),
        ({"temperatures": [INF]}, "temperatures[0]"),
        ({"temperatures": []}, "temperatures"),
        ({"entropy": -0.1}, "entropy"),
        ({"mass": 0}, "mass"),
        ({"mass": 1.5}, "mass"),
    ],
)
def test_what_is_asked_is_checked(asked, field):
    with pytest.raises(ParameterError) as refused:
        analyze(DenseRows(torch.zeros(1, 2)), **asked)
    assert refused.value.field == field


def test_a_batch_is_not_written_to_and_may_have_no_rows():
    logits = row_of("normal", 300)[None].clone()
    before = logits.clone()
    analyze(DenseRows(logits), [0.5], entropy=2.0, mass=0.9)
    assert torch.equal(logits, before)
    assert analyze(DenseRows(torch.zeros(0, 5))) == []
