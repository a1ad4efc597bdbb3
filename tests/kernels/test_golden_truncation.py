"""Worked numbers: what truncation leaves, and where its boundaries are.

Ids of public reports are known-faults rows.
"""

import math

import numpy as np
import pytest
import torch
from golden import FOUR, both, one_thread  # noqa: F401  (a fixture)
from rows_of import FLOATS, INF, ask, distribution, draw_at, logs, softmax64

# ---- Truncation: (probabilities, parameters, what is left of them) ----

RAMP = softmax64(np.arange(10.0) - 5).tolist()
TRUNCATIONS = {
    # llama.cpp test-sampling.cpp; never exactly on a boundary, which rounding would decide
    "temperature 1": (FOUR, {"temperature": 1}, FOUR),
    "temperature 0": (FOUR, {"temperature": 0}, (0, 0, 0, 1)),
    "top_k 1": (FOUR, {"top_k": 1}, (0, 0, 0, 1)),
    "top_k 3": (FOUR, {"top_k": 3}, (0, 2 / 9, 3 / 9, 4 / 9)),
    "top_k 4": (FOUR, {"top_k": 4}, FOUR),
    "top_k 0 is off": (FOUR, {"top_k": 0}, FOUR),
    "top_k -1 is off": (FOUR, {"top_k": -1}, FOUR),
    "top_p 0.01": (FOUR, {"top_p": 0.01}, (0, 0, 0, 1)),
    "top_p 0.69": (FOUR, {"top_p": 0.69}, (0, 0, 3 / 7, 4 / 7)),
    "top_p 0.71": (FOUR, {"top_p": 0.71}, (0, 2 / 9, 3 / 9, 4 / 9)),
    "top_p 0.8": (FOUR, {"top_p": 0.8}, (0, 2 / 9, 3 / 9, 4 / 9)),
    "top_p 1": (FOUR, {"top_p": 1}, FOUR),
    "min_p 0": (FOUR, {"min_p": 0}, FOUR),
    "min_p 0.24": (FOUR, {"min_p": 0.24}, FOUR),
    "min_p 0.26": (FOUR, {"min_p": 0.26}, (0, 2 / 9, 3 / 9, 4 / 9)),
    "min_p 0.49": (FOUR, {"min_p": 0.49}, (0, 2 / 9, 3 / 9, 4 / 9)),
    "min_p 0.51": (FOUR, {"min_p": 0.51}, (0, 0, 3 / 7, 4 / 7)),
    "min_p 0.74": (FOUR, {"min_p": 0.74}, (0, 0, 3 / 7, 4 / 7)),
    "min_p 0.76": (FOUR, {"min_p": 0.76}, (0, 0, 0, 1)),
    "min_p 1": (FOUR, {"min_p": 1}, (0, 0, 0, 1)),
    # Hugging Face test_logits_process.py
    "hf top_p, first row": ((0.3, 0.1, 0.1, 0.5), {"top_p": 0.79}, (0.375, 0, 0, 0.625)),
    "hf top_p, second row": ((0.15, 0.3, 0.3, 0.25), {"top_p": 0.8}, (0, 0.3 / 0.85, 0.3 / 0.85, 0.25 / 0.85)),
    "hf top_p, ramp": (RAMP, {"top_p": 0.9}, [0] * 7 + softmax64(np.arange(3.0)).tolist()),
    "hf top_k, ramp": (RAMP, {"top_k": 3}, [0] * 7 + softmax64(np.arange(3.0)).tolist()),
    "hf min_p, first row": ((0.9, 0.0274, 0.047, 0.0256), {"min_p": 0.05}, (0.9 / 0.947, 0, 0.047 / 0.947, 0)),
    "hf min_p, second row": ((0.15, 0.3, 0.3, 0.25), {"min_p": 0.05}, (0.15, 0.3, 0.3, 0.25)),
    "hf min_p, third row": ((0.97, 0.01, 0.01, 0.01), {"min_p": 0.05}, (1, 0, 0, 0)),
    # public reports of faults
    "#34 no token beyond the mass": ((0.3, 0.1, 0.1, 0.5), {"top_p": 0.7999999}, (0.375, 0, 0, 0.625)),
    "#34 and one more past it": ((0.3, 0.1, 0.1, 0.5), {"top_p": 0.8000001}, (1 / 3, 1 / 9, 0, 5 / 9)),
    "#35 the crossing token is in": ((0.4, 0.3, 0.2, 0.1), {"top_p": 0.8}, (4 / 9, 3 / 9, 2 / 9, 0)),
    "#37": ((0.5, 0.41, 0.09), {"top_p": 0.9}, (50 / 91, 41 / 91, 0)),
    "#38 p = 0.6": ((0.5, 0.3, 0.15, 0.05), {"top_p": 0.6}, (5 / 8, 3 / 8, 0, 0)),
    "#38 p = 0.85": ((0.5, 0.3, 0.15, 0.05), {"top_p": 0.85}, (50 / 95, 30 / 95, 15 / 95, 0)),
    "#40 k first": (FOUR, {"top_k": 2, "top_p": 0.5}, (0, 0, 0, 1)),
    "#50 exactly k": ((0.4, 0.3, 0.3, 0), {"top_k": 2}, (4 / 7, 3 / 7, 0, 0)),
    "#50 all ties": ((0.4, 0.3, 0.3, 0), {"top_k": 2, "ties": "all"}, (0.4, 0.3, 0.3, 0)),
    "#61 top_k above V": (FOUR, {"top_k": 50}, FOUR),
    # several steps: top_p is a share of what the earlier cuts kept
    "min_p before top_p": (FOUR, {"min_p": 0.51, "top_p": 0.5}, (0, 0, 0, 1)),
    "min_p before top_k": (FOUR, {"min_p": 0.51, "top_k": 3}, (0, 0, 3 / 7, 4 / 7)),
    "all three": (FOUR, {"min_p": 0.3, "top_k": 3, "top_p": 0.7}, (0, 0, 3 / 7, 4 / 7)),
}


@both
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TRUNCATIONS)
def test_truncation(name, dtype, backend):
    probabilities, params, left = TRUNCATIONS[name]
    expected = {token: p for token, p in enumerate(left) if p}
    row = logs(probabilities, FLOATS[dtype])
    assert distribution(row, params, backend) == pytest.approx(expected, abs=1e-6)
    answer = ask(row, params, backend)
    assert answer.kept == len(expected)
    if params.get("temperature") != 0:
        assert answer.kept_mass == pytest.approx(sum(probabilities[token] for token in expected), abs=1e-6)
        assert answer.entropy_kept == pytest.approx(-sum(p * math.log(p) for p in expected.values()), abs=1e-5)
        assert answer.entropy == pytest.approx(-sum(p * math.log(p) for p in probabilities if p), abs=1e-5)


SEVEN = [5, 3, 2.5, 1, 4, 2, 1.5]


@both
@pytest.mark.parametrize(
    ("logits", "params", "expected"),
    [
        (SEVEN, {"temperature": 0.75, "top_p": 0.95}, {0: 0.75014, 4: 0.19774, 1: 0.05212}),
        (SEVEN, {"temperature": 0.75, "top_p": 0.90}, {0: 0.79139, 4: 0.20861}),
        ([3, 1, 0], {"temperature": 2, "top_p": 0.9}, {0: 0.6285317, 1: 0.2312239, 2: 0.1402444}),  # T acts first
        ([3, 1, 0], {"temperature": 1, "top_p": 0.9}, {0: 0.8807971, 1: 0.1192029}),
        ([2, 1, 0], {"temperature": 2, "min_p": 0.5}, {0: 0.6224593, 1: 0.3775407}),  # e^-0.5 = 0.61 is kept
        ([2, 1, 0], {"temperature": 1, "min_p": 0.5}, {0: 1}),  # e^-1 = 0.37 is not
        ([-2, -1, -3], {"min_p": 0.2}, {1: 0.7310586, 0: 0.2689414}),  # M + ln(min_p), not M · min_p
    ],
)
def test_nuclei_of_logits(logits, params, expected, backend):
    assert distribution(logits, params, backend) == pytest.approx(expected, abs=1e-5)


# ---- Boundaries that rounding cannot move ----


@both
@pytest.mark.parametrize("size", [4, 8, 4096, 8192])
@pytest.mark.parametrize(("top_p", "share"), [(0.25, 0.25), (0.5, 0.5), (0.75, 0.75), (1 - 2**-53, 1)])
def test_top_p_that_the_mass_meets_exactly_takes_no_further_token(size, top_p, share, backend):
    assert ask(torch.full((size,), 2.0), {"top_p": top_p}, backend).kept == share * size
    above = math.nextafter(top_p, 1)
    assert ask(torch.full((size,), 2.0), {"top_p": above}, backend).kept == min(share * size + 1, size)


@both
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("maximum", [0.0, 8.0, -8.0])
def test_min_p_is_inclusive_in_logit_space(maximum, temperature, backend):
    floor = maximum + temperature * math.log(0.25)
    row = [maximum, math.nextafter(floor, INF), floor, math.nextafter(floor, -INF)]
    assert ask(row, {"temperature": temperature, "min_p": 0.25}, backend).kept == 3


@both
@pytest.mark.parametrize("top_p", [1e-12, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [4, 5000])
def test_a_tiny_top_p_keeps_one(size, dtype, top_p, backend):  # 32
    row = torch.zeros(size, dtype=FLOATS[dtype])
    answer = draw_at(row, [1e-9, 0.5, 1.0], {"top_p": top_p}, backend)
    assert (answer.kept, answer.tokens, answer.logprobs) == (1, [0] * 3, [0.0] * 3)


@both
@pytest.mark.parametrize("top_p", [1e-8, 1e-7, 1e-4, 1e-3])
def test_a_small_top_p_keeps_the_argmax_of_a_vocabulary(top_p, backend):  # 32
    row = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    assert draw_at(row, [1.0], {"top_p": top_p}, backend).tokens == [int(row.argmax())]


@both
def test_top_p_near_one_stays_inside_the_vocabulary(backend):  # 31
    for row, scale in zip(torch.randn(2, 32000, generator=torch.Generator().manual_seed(0)), (1, 3), strict=True):
        row = row * scale  # of the second, the last tokens together have less than 1e-7
        answer = draw_at(row, [1e-9, 0.5, 1 - 2**-53, 1.0], {"top_p": 0.9999999}, backend)
        ascending = np.cumsum(np.sort(softmax64(row)))
        assert answer.kept == 32000 - np.searchsorted(ascending, 1e-7, side="right")
        assert (answer.kept == 32000) == (scale == 1)
        assert answer.kept_mass >= 0.9999999
        last = torch.sort(row, descending=True, stable=True).indices[answer.kept - 1]
        assert answer.tokens[-2:] == [last, last]


@both
@pytest.mark.parametrize("top_k", [2, 64, 65, 1024, 1025, 4999])
def test_exactly_k_of_equals_and_all_of_them_on_request(top_k, backend):  # 49, 50
    row = torch.zeros(5000)
    row[::2] = 1.0
    exact = draw_at(row, [1.0], {"top_k": top_k}, backend)
    last = 2 * (top_k - 1) if top_k <= 2500 else 2 * (top_k - 2500) - 1
    assert (exact.kept, exact.tokens) == (top_k, [last])
    every = draw_at(row, [1.0], {"top_k": top_k, "ties": "all"}, backend)
    assert (every.kept, every.tokens) == ((2500, [4998]) if top_k <= 2500 else (5000, [4999]))


@both
@pytest.mark.parametrize("size", [1000, 151936])
def test_top_k_holds_where_one_token_has_half_the_mass(size, backend):  # 41
    row = logs([0.5] + [0.5 / (size - 1)] * (size - 1), torch.float32)
    assert distribution(row, {"top_k": 2}, backend) == pytest.approx({0: 1 - 1 / size, 1: 1 / size}, rel=1e-5)


@both
@pytest.mark.parametrize("top_k", [5, 6, 50, 1 << 30, 10**30])
def test_top_k_above_the_vocabulary_changes_nothing(top_k, backend):  # 61
    row = [0.5, -1, 2, 0, 1]
    assert ask(row, {"top_k": top_k, "n": 20}, backend) == ask(row, {"n": 20}, backend)
