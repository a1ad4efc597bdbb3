"""The temperature of an entropy, and the nucleus of a mass."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from rows_of import INF, KINDS, law, logs, row_of, softmax64

from logitd_kernels import DenseRows, check, pick, sample
from logitd_kernels.thermo import analyze
from logitd_kernels.thermo.inverse import TOLERANCE, temperature_for_entropy
from logitd_kernels.thermo.survey import Survey


def analysed(row, temperatures=(1.0,), backend="cpu", **asked):
    row = row if isinstance(row, torch.Tensor) else torch.tensor(row, dtype=torch.float64)
    [answer] = analyze(DenseRows(row[None]), temperatures, backend=pick(backend), **asked)
    return answer


def entropy_at(row, temperature):
    return float(analysed(row, [temperature]).sweep.entropy[0])


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("share", [1e-6, 0.5, 1 - 1e-6])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("equal", "mostly_masked")])
def test_round_trip(kind, share, backend):
    row = row_of(kind, 700)
    least, most = math.log(int((row == row.max()).sum())), math.log(int((row > -INF).sum()))
    wanted = least + share * (most - least)
    found = analysed(row, entropy=wanted, backend=backend).temperature_for_entropy
    assert entropy_at(row, found) == pytest.approx(wanted, abs=1.1 * TOLERANCE)


@law
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.floats(0.05, 20))
def test_inverts_the_sweep(logits, temperature):
    assume(max(logits) - min(logits) > 1e-3)
    sweep = analysed(logits, [temperature]).sweep
    assume(sweep.heat_capacity[0] > 1e-4)
    found = analysed(logits, entropy=float(sweep.entropy[0])).temperature_for_entropy
    assert found == pytest.approx(temperature, rel=2 * TOLERANCE / sweep.heat_capacity[0] + 1e-9)


def test_two_levels_by_hand():
    """Of two tokens one nat apart, p = 1/(1 + e^(-1/T))."""
    found = analysed([1.0, 0.0], entropy=-(0.9 * math.log(0.9) + 0.1 * math.log(0.1))).temperature_for_entropy
    assert found == pytest.approx(1 / math.log(9), rel=1e-8)


@pytest.mark.parametrize(
    ("logits", "entropy", "words"),
    [
        ([2, 2, 1, 0], 0.5, "between ln 2 = 0.693147 and ln 4 = 1.38629"),
        ([2, 2, 1, 0], math.log(2), "between ln 2"),
        ([2, 2, 1, 0], math.log(4), "between ln 2"),
        ([2, 1, -INF], 0.8, "ln 1 = 0 and ln 2 = 0.693147"),
        ([3, 3, 3], math.log(3), "all 3 finite logits are equal: the entropy is 1.09861 at every temperature"),
        ([5, -INF], 0.0, "one logit is finite: the entropy is 0 at every temperature"),
    ],
)
def test_out_of_reach_says_why(logits, entropy, words):
    answer = analysed(logits, entropy=entropy)
    assert answer.temperature_for_entropy is None
    [reason] = [warning.detail for warning in answer.warnings if warning.code == "entropy_out_of_reach"]
    assert words in reason


def test_few_passes_suffice():
    row = row_of("normal", 3000)
    asked = []

    def evaluate(temperature):
        asked.append(temperature)
        sweep = analysed(row, [temperature]).sweep
        return float(sweep.entropy[0]), float(sweep.heat_capacity[0])

    for wanted in (1e-6, 0.01, 1.0, 4.0, 7.9, math.log(3000) - 1e-9):
        asked.clear()
        assert temperature_for_entropy(evaluate, Survey.of(row, row.dtype), wanted).temperature > 0
        assert len(asked) < 30, wanted


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_nucleus_by_hand(backend):
    row = logs([0.1, 0.4, 0.0, 0.2, 0.3])
    sizes = {mass: analysed(row, mass=mass, backend=backend).sweep.nucleus.tolist() for mass in (0.39, 0.41, 0.95, 1)}
    assert sizes == {0.39: [1], 0.41: [2], 0.95: [4], 1: [4]}
    assert analysed([7.0] * 4, mass=0.5, backend=backend).sweep.nucleus.tolist() == [2]  # reached exactly


@pytest.mark.parametrize("mass", [1e-9, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_nucleus_is_what_top_p_keeps(kind, mass):
    row = row_of(kind, 3000)
    temperatures = [0.1, 1.0, 30.0]
    nucleus = analysed(row, temperatures, mass=mass).sweep.nucleus
    for size, temperature in zip(nucleus.tolist(), temperatures, strict=True):
        values = check({"temperature": temperature, "top_p": mass, "seed": 1})
        [drawn] = sample(DenseRows(row[None]), values, backend=pick("reference"))
        assert size == drawn.kept
        shares = -np.sort(-softmax64(row, temperature))
        assert shares[:size].sum() >= mass * (1 - 1e-12)
        assert size == 1 or shares[: size - 1].sum() <= mass * (1 + 1e-12)


def test_no_nucleus_unless_asked():
    assert analysed([1.0, 2.0]).sweep.nucleus is None
