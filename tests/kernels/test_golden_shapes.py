"""Worked numbers: what depends on the shape of a distribution.

Ids of public reports are known-faults rows.
"""

import math

import numpy as np
import pytest
import torch
from golden import FOUR, MASKED, both, one_thread  # noqa: F401  (a fixture)
from rows_of import ask, distribution, draw_at, left_of, logs

import logitd_kernels as K

# ---- XTC ----

ON = {"xtc_probability": 1}


@both
def test_xtc_keeps_the_boundary_token_and_the_tail(backend):  # 44
    told = distribution([4, 3, 2, -10, -10], {**ON, "xtc_threshold": 0.1}, backend)
    base = np.exp([3.0, 2, -10, -10])
    assert [told[token] for token in (1, 2)] == pytest.approx((base / base.sum())[:2].tolist(), abs=1e-9)
    assert ask([4, 3, 2, -10, -10], {**ON, "xtc_threshold": 0.1}, backend).kept == 4


@both
def test_xtc_is_in_the_mean_what_exllama_weighs_by_expectation(backend):
    """P = 0.5 over the threshold 0.1: 0.321957 is left of 0.643914, and the others share the rest."""
    logits = [2, 1, 0, -1]
    off, on = (distribution(logits, {**drop, "xtc_threshold": 0.1}, backend) for drop in ({}, ON))
    assert on == pytest.approx({1: 0.665241, 2: 0.244728, 3: 0.090031}, abs=1e-6)
    mean = {token: (off[token] + on.get(token, 0)) / 2 for token in off}
    expected = [0.169081, 0.236883, 0.087144, 0.032059]  # x(1 - P)/(1 + Px/(1 - x)), not renormalised
    assert [mean[token] for token in range(4)] == pytest.approx([w / sum(expected) for w in expected], abs=2e-6)
    assert mean[0] == pytest.approx(0.321957, abs=1e-6)
    assert distribution([2, -9], {**ON, "xtc_threshold": 0.1}, backend).keys() == {0, 1}  # one alone stays


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_xtc_acts_as_often_as_it_is_told(probability):
    rows = K.DenseRows(logs(FOUR)[None].expand(1000, -1))
    params = [K.check({"seed": 5, "step": step, "xtc_probability": probability}) for step in range(1000)]
    dropped = sum(answer.kept == 1 for answer in K.sample(rows, params))
    assert abs(dropped - 1000 * probability) < 4 * math.sqrt(1000 * probability * (1 - probability))


@both
def test_one_draw_of_xtc_is_not_the_draw_of_the_token(backend):
    """Its uniform is another counter: patched draws change nothing of what is left out."""
    for u in (1e-9, 0.5, 1.0):
        assert draw_at(logs(FOUR), [u], {**ON, "xtc_threshold": 0.15}, backend).kept == 2


# ---- Standard deviations ----


@both
def test_top_n_sigma_is_of_the_population(backend):
    assert ask([0.0, -1.0], {"top_n_sigma": 1.5}, backend).kept == 1  # Bessel's form would keep both
    assert ask([0.0, -1.0], {"top_n_sigma": 2}, backend).kept == 2  # inclusive


@both
def test_top_n_sigma_is_over_what_is_not_masked(backend):  # 10
    told = distribution([MASKED, 1, 2, 3], {"top_n_sigma": 1}, backend)
    assert told == {3: 1.0}
    assert ask([MASKED, 1, 2, 3], {"top_n_sigma": 1.3}, backend).kept == 2
    assert ask([5.0] * 4, {"top_n_sigma": 0.1}, backend).kept == 4  # no deviation at all
    assert ask([MASKED, 7.0, MASKED], {"top_n_sigma": 1}, backend).kept == 1


@both
@pytest.mark.parametrize("temperature", [1e-3, 0.5, 3, 1e6])
def test_top_n_sigma_is_the_same_at_any_temperature(temperature, backend):
    row = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    kept = [ask(row, {"top_n_sigma": 2, "temperature": t}, backend).kept for t in (1, temperature)]
    assert kept[0] == kept[1] > 1


# ---- top_a, smoothing, dynatemp, at the first step ----


@both
@pytest.mark.parametrize(("top_a", "kept"), [(0.62, 4), (0.63, 3), (1.0, 3)])  # of 0.16: 0.0992, 0.1008 and 0.16
def test_top_a(top_a, kept, backend):
    assert ask(logs(FOUR), {"top_a": top_a}, backend).kept == kept


@both
@pytest.mark.parametrize(
    ("curve", "after"), [(1, (0, -0.5, -4.5)), (2, (0, -0.5, -9)), (3, (0, -0.5, -13.5)), (1.5, (0, -0.5, -6.75))]
)
def test_smoothing(curve, after, backend):
    params = {"smoothing_factor": 0.5, "smoothing_curve": curve}
    masses = np.exp(after)
    expected = pytest.approx((masses / masses.sum()).tolist(), abs=1e-9)
    for scale in (1, 0.25):  # the temperature acts before
        logits = [scale * logit for logit in (2, 1, -1)]
        told = distribution(logits, {**params, "temperature": scale}, backend)
        assert [told.get(token, 0) for token in range(3)] == expected
    assert ask([2, 1, -1], params, backend).entropy == pytest.approx(-sum(p * np.log(p) for p in masses / masses.sum()))


@both
@pytest.mark.parametrize("logits", [[3.0], [2, 2, 2, 2], [9, MASKED]])
def test_dynatemp_at_its_ends(logits, backend):
    """Equal tokens are drawn at T + range, whose distribution is the same at any; a single one at any."""
    params = {"temperature": 0.8, "dynatemp_range": 0.3}
    assert distribution(logits, params, backend) == pytest.approx(distribution(logits, {}, backend), abs=1e-12)


@both
@pytest.mark.parametrize(("low", "exponent"), [(0.0, 1), (0.7, 1), (0.5, 2), (0.0, 0.5)])
def test_dynatemp_by_its_formula(low, exponent, backend):
    share = 1.2798542258336676 / math.log(4)
    spread = (1 - low) if low else 2.0  # a range above the temperature begins at 0
    temperature = low + (1 + spread - low) * share**exponent
    powers = np.array(FOUR) ** (1 / temperature)
    params = {"dynatemp_range": spread, "dynatemp_exponent": exponent}
    assert left_of(FOUR, params, backend) == pytest.approx((powers / powers.sum()).tolist(), abs=1e-9)


@both
def test_dynatemp_beyond_what_a_float_holds(backend):
    params = {"temperature": 1.7e308, "dynatemp_range": 1.7e308}
    answer = ask([0.0, -1e-3, -2], {**params, "n": 50}, backend)
    assert answer.entropy == pytest.approx(math.log(3), rel=1e-12)
    assert ask([0.0, -1e6], {**params, "n": 5}, backend).tokens == [0] * 5  # H is 0, and T_min too


# ---- Nothing to draw from ----

STEPS = [
    {"eta_cutoff": 0.06},  # 11
    {"typical_p": 0.5},
    {"top_n_sigma": 1},
    {"top_h": 0.5},
    {"epsilon_cutoff": 0.1},
    {"xtc_probability": 1},
    {"dynatemp_range": 0.5},
    {"smoothing_factor": 0.5},
    {"repetition_penalty": 2},
    {"guidance_scale": 2},
]


@both
@pytest.mark.parametrize("params", STEPS)
def test_a_row_without_a_token_fails_alone(params, backend):  # 8, 13
    rows = K.DenseRows(torch.tensor([[MASKED] * 3, [1.0, 2, 3]]), output_ids=torch.tensor([[0], [0]]))
    fault, answer = K.sample(rows, K.check({"seed": 1, **params}), backend=K.pick(backend))
    assert (fault.row, fault.code, fault.kind) == (0, "all_masked", "all_neginf")
    assert answer.kept >= 1
