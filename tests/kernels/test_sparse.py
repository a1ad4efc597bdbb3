"""Sparsemax, 1.5-entmax and Gumbel-softmax, against obvious float64 versions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loadtest.http.profiles import real
from rows_of import FLOATS, INF, KINDS, law, row_of, softmax64, threads

import logitd_kernels as K
from logitd_kernels.errors import ParameterError
from logitd_kernels.gumbel import Noise, gumbel_noise
from logitd_kernels.philox import PURPOSE_GUMBEL, PURPOSE_SAMPLE

SPARSE = ["sparsemax", "entmax15"]
NEW = [*SPARSE, "gumbel_softmax"]
SIZES = [5, 7, 300, 5000]


def answer(row, kind, temperature=1.0, noise=None):
    """The kind's answer to one row, computed in float64."""
    row = row if isinstance(row, torch.Tensor) else torch.tensor(row, dtype=torch.float64)
    own = [noise or Noise(1)] if kind == "gumbel_softmax" else []
    return K.softmax(K.DenseRows(row.double()[None]), [temperature], kind, None, own)


def values(row, kind, temperature=1.0, noise=None):
    return answer(row, kind, temperature, noise).values[0].numpy()


def scaled(row, temperature):
    """x/T, its largest moved to 0."""
    wide = np.asarray(row.double() if isinstance(row, torch.Tensor) else row, np.float64)
    with np.errstate(over="ignore"):
        return (wide - wide.max()) / temperature


# ---- Oracles ----


def sparsemax64(z):
    """Algorithm 1 of the paper, literally, sums exactly rounded."""
    ordered = sorted(np.maximum(z, -1e6).tolist(), reverse=True)
    size = max(k for k in range(1, len(ordered) + 1) if 1 + k * ordered[k - 1] > math.fsum(ordered[:k]))
    threshold = (math.fsum(ordered[:size]) - 1) / size
    return np.maximum(z - threshold, 0)


def bisected(z, power):
    """max(z − τ, 0)^power with the τ at which it sums to 1."""
    low, high = -1.0, 0.0  # of a row whose largest is 0
    while high - low > 1e-15:
        middle = (low + high) / 2
        if np.sum(np.maximum(z - middle, 0) ** power) > 1:
            low = middle
        else:
            high = middle
    return np.maximum(z - high, 0) ** power


def entmax64(z):
    return bisected(z / 2, 2)


ORACLES = {"sparsemax": sparsemax64, "entmax15": entmax64}


# ---- Sparse maps ----


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("size", [1, *SIZES[:3]])
@pytest.mark.parametrize("name", KINDS)
def test_a_sparse_map_is_that_of_its_definition(kind, name, size, temperature):
    row = row_of(name, size, torch.float64)
    expected = ORACLES[kind](scaled(row, temperature))
    assert values(row, kind, temperature) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize(("kind", "power"), [("sparsemax", 1), ("entmax15", 2)])
@pytest.mark.parametrize("name", ["normal", "flat", "ties", "peaked", "mostly_masked", 1, 5])
def test_a_long_row_too(kind, power, name):
    row = row_of(name, 32_000, torch.float64) if isinstance(name, str) else torch.from_numpy(real.rows()[name])
    assert values(row, kind) == pytest.approx(bisected(scaled(row, 1.0) / power, power), abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "row", "expected"),
    [
        ("sparsemax", [-2, 0, 0.5], [0, 0.25, 0.75]),
        ("sparsemax", [1, 2, 3], [0, 0, 1]),  # a distance of 1 is just outside
        ("sparsemax", [0.2, 0.1, -INF], [0.55, 0.45, 0]),
        (
            "sparsemax",
            [3, 3, 3, 2.75],
            [1 / 3 - 0.0208333333333, 1 / 3 - 0.0208333333333, 1 / 3 - 0.0208333333333, 0.0625],
        ),
        ("entmax15", [0, 0, 0, 0], [0.25] * 4),
        ("entmax15", [2, 0], [1, 0]),  # a distance of 2 is just outside
        ("entmax15", [1, 0], [(0.25 + math.sqrt(7) / 4) ** 2, (math.sqrt(7) / 4 - 0.25) ** 2]),
        ("entmax15", [-INF, 7], [0, 1]),
    ],
)
def test_worked_numbers(kind, row, expected):
    assert values(row, kind) == pytest.approx(expected, abs=1e-12)


@law
@given(
    kind=st.sampled_from(SPARSE),
    row=st.lists(st.floats(-30, 30, width=32) | st.just(-INF), min_size=1, max_size=40),
    temperature=st.floats(0.05, 20),
)
def test_laws_of_sparse_maps(kind, row, temperature):
    row = [0.0, *row]
    told = answer(row, kind, temperature)
    masses = told.values[0].numpy()
    assert math.fsum(masses) == pytest.approx(1, abs=1e-13)
    assert (masses >= 0).all()
    order = np.argsort(row, kind="stable")
    assert (np.diff(masses[order]) >= 0).all(), "a larger logit has no smaller probability"
    kept = masses[masses > 0]
    assert told.entropy[0] == pytest.approx(-np.sum(kept * np.log(kept)), abs=1e-12)
    assert math.isnan(told.log_z[0])
    shifted = np.array(row) + 4.0
    assert values(shifted.tolist(), kind, temperature) == pytest.approx(masses, abs=1e-9), "an offset changes nothing"


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("size", [2, 1000, 1_000_000])
def test_small_probabilities_beside_a_large_one_are_exact(kind, size):
    """All but one token share the rest equally: nothing of it is lost to the sum of a million numbers."""
    row = np.full(size, -0.5)
    row[0] = 0.0
    masses = values(torch.from_numpy(row), kind)
    n = size - 1
    if kind == "sparsemax":
        rest = 0.5 / size
    else:  # (u + 1/4)² + n·u² = 1
        root = (15 / 16) / (0.25 + math.sqrt(1 / 16 + size * 15 / 16))
        rest = root**2
    assert np.abs(masses[1:] / rest - 1).max() < 1e-12
    assert masses[0] == pytest.approx(1 - n * masses[1], rel=1e-9)


@pytest.mark.parametrize("kind", SPARSE)
def test_extreme_temperatures(kind):
    row = [3.0, 2.5, -INF, 3.0, -1e300]
    assert values(row, kind, 1e-300) == pytest.approx([0.5, 0, 0, 0.5, 0], abs=1e-15)
    assert values(row[:4], kind, 1e30) == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


# ---- Gumbel noise ----


@pytest.mark.parametrize("noise", [Noise(0), Noise(2**64 - 1, 2**32 - 1, 2**32 - 1), Noise(2**40 + 7, 3, 9)])
def test_noise_is_that_of_the_uniforms_that_anyone_can_draw(noise):
    uniforms = np.array(
        [K.uniform(noise.seed, noise.stream, noise.step, token, PURPOSE_GUMBEL) for token in range(500)]
    )
    assert gumbel_noise(noise, 500) == pytest.approx(-np.log(-np.log(uniforms)), abs=1e-11)


def test_noise_of_a_token_does_not_depend_on_the_vocabulary():
    noise = Noise(11, 2, 3)
    long = gumbel_noise(noise, 20_000)
    assert long[:500].tolist() == gumbel_noise(noise, 500).tolist()
    assert long[:8192].tolist() == gumbel_noise(noise, 8192).tolist()
    for token in (8191, 8192, 16_384, 19_999):
        u = K.uniform(noise.seed, noise.stream, noise.step, token, PURPOSE_GUMBEL)
        assert long[token] == pytest.approx(-math.log(-math.log(u)), abs=1e-9)


def test_noise_has_a_purpose_of_its_own():
    draw = K.uniform(1, 0, 0, 0, PURPOSE_SAMPLE)
    assert gumbel_noise(Noise(1), 1)[0] != pytest.approx(-math.log(-math.log(draw)))


@pytest.mark.parametrize(("bits", "expected"), [(0, -3.62247113), (2**53 - 1, 37.42994775), (2**52, 0.36651292)])
def test_noise_keeps_its_tails(monkeypatch, bits, expected):
    monkeypatch.setattr("logitd_kernels.gumbel.bits53", lambda *key: np.array([bits], np.uint64))
    assert gumbel_noise(Noise(1), 1)[0] == pytest.approx(expected, abs=1e-8)


def test_noise_rises_with_its_bits_without_a_step_in_the_middle(monkeypatch):
    near = np.arange(2**52 - 1000, 2**52 + 1000, dtype=np.uint64)
    monkeypatch.setattr("logitd_kernels.gumbel.bits53", lambda *key: near)
    steps = np.diff(gumbel_noise(Noise(1), 1))
    assert (steps >= 0).all()
    assert steps.max() < 1e-15


def test_noise_is_gumbels():
    """Kolmogorov's distance of 200,000 tokens, at a level of 1e-6."""
    ordered = np.sort(gumbel_noise(Noise(20), 200_000))
    expected = np.exp(-np.exp(-ordered))
    places = np.arange(1, len(ordered) + 1) / len(ordered)
    assert np.abs(places - expected).max() < math.sqrt(math.log(2e6) / (2 * len(ordered)))


def test_the_largest_noisy_logit_is_a_draw():
    """Gumbel's maximum: χ² of 3,000 streams against softmax, at a level of 1e-6."""
    probabilities = np.array([0.5, 0.25, 0.15, 0.1])
    row = np.log(probabilities)
    counts = np.bincount([np.argmax(row + gumbel_noise(Noise(5, stream), 4)) for stream in range(3_000)], minlength=4)
    assert (((counts - 3_000 * probabilities) ** 2) / (3_000 * probabilities)).sum() < 30.66


def test_gumbel_softmax_is_the_softmax_of_noisy_logits():
    row, noise = row_of("mostly_masked", 5000, torch.float64), Noise(3, 1, 4)
    noisy = row.numpy() + gumbel_noise(noise, 5000)
    told = answer(row, "gumbel_softmax", 0.3, noise)
    expected = softmax64(noisy, 0.3)
    assert told.values[0].numpy() == pytest.approx(expected, rel=1e-12)
    assert (told.values[0].numpy()[row.numpy() == -INF] == 0).all()
    assert told.log_z[0] == pytest.approx(np.logaddexp.reduce(noisy / 0.3), rel=1e-12)
    kept = expected[expected > 0]
    assert told.entropy[0] == pytest.approx(-np.sum(kept * np.log(kept)), rel=1e-9)


@pytest.mark.parametrize("kind", ["softmax", *SPARSE])
def test_noise_goes_with_its_kind_alone(kind):
    with pytest.raises(ParameterError, match="seed: expected none"):
        K.softmax(K.DenseRows(torch.zeros(1, 3)), [1.0], kind, None, [Noise(1)])


@pytest.mark.parametrize("count", [0, 2])
def test_every_row_has_noise_of_its_own(count):
    with pytest.raises(ParameterError, match="seed: expected one for each of 1 rows"):
        K.softmax(K.DenseRows(torch.zeros(1, 3)), [1.0], "gumbel_softmax", None, [Noise(1)] * count)


# ---- All of them ----


@pytest.mark.parametrize("kind", NEW)
def test_same_bits_alone_in_a_batch_and_on_any_number_of_threads(kind):
    logits = torch.stack([row_of(name, 20_001, torch.float64) for name in KINDS])
    temperatures = [0.5 + place for place in range(len(logits))]
    noise = [Noise(7, place) for place in range(len(logits))] if kind == "gumbel_softmax" else []
    whole = K.softmax(K.DenseRows(logits), temperatures, kind, None, noise)
    for count in (1, 4):
        with threads(count):
            for place, temperature in enumerate(temperatures):
                own = noise[place : place + 1]
                alone = K.softmax(K.DenseRows(logits[place : place + 1]), [temperature], kind, None, own)
                assert torch.equal(alone.values[0], whole.values[place])
                assert torch.equal(alone.entropy[0], whole.entropy[place])
                assert torch.equal(alone.log_z, whole.log_z[place : place + 1]) or kind in SPARSE


@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_dtype_changes_the_output_alone(kind, dtype):
    row = row_of("normal", 300, FLOATS[dtype])
    noise = [Noise(1)] if kind == "gumbel_softmax" else []
    told = K.softmax(K.DenseRows(row[None]), [0.7], kind, None, noise).values[0]
    assert told.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    assert torch.equal(told, torch.from_numpy(values(row, kind, 0.7)).to(told.dtype))


@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("bad", [[0, math.nan, 1], [0, INF, 1], [-INF] * 3])
def test_a_bad_row_fails_alone(kind, bad):
    logits = torch.tensor([[0.0, 1, 2], bad, [2, 1, 0]])
    noise = [Noise(1)] * 3 if kind == "gumbel_softmax" else []
    told = K.softmax(K.DenseRows(logits), [1.0] * 3, kind, None, noise)
    assert [fault.row for fault in told.faults] == [1]
    assert torch.isnan(told.values[1]).all()
    assert torch.isnan(told.entropy).tolist() == [False, True, False]
    assert told.values[[0, 2]].sum(1).tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("kind", NEW)
def test_inputs_are_never_written_to(kind):
    logits = torch.randn(2, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    noise = [Noise(1)] * 2 if kind == "gumbel_softmax" else []
    K.softmax(K.DenseRows(logits), [1.0] * 2, kind, None, noise)
    assert torch.equal(logits, before)
