"""Worked numbers: rows small enough to check by hand, on both backends. Ids of public reports are known-faults rows."""

import math

import numpy as np
import pytest
import torch
from rows_of import BACKENDS, FLOATS, INF, ask, bitmask, distribution, draw_at, logs, softmax64, threads

import logitd_kernels as K
from logitd_kernels.sampling.result import RowLogprobs, TopLogprob
from logitd_kernels.softmax import KINDS

both = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


FOUR = (0.1, 0.2, 0.3, 0.4)
MASKED = -INF


def rows(*values, dtype=torch.float64):
    return K.DenseRows(torch.tensor(values, dtype=dtype))


# ---- Softmax, log-softmax, log Z and entropy (40-digit arithmetic) ----

THREE = ((0.0900305731704, 0.244728471055, 0.665240955775), 0.83239558184)
DISTRIBUTIONS = {
    # name: (logits, T, probabilities, log-probabilities or None for ln p, log Z at T, entropy)
    "1 2 3": ([1, 2, 3], 1, THREE[0], None, 3.4076059644444, THREE[1]),
    "1000": ([1000, 1000, 999], 1, (0.422318798252,) * 2 + (0.155362403497,), None, 1000.8619948041, 1.01735720756),
    "-1000": ([-1000, -1001, -1002], 1, THREE[0][::-1], None, -999.59239403556, THREE[1]),
    "1e5": ([1e5, 1e5 - 1, 1e5 - 2], 1, THREE[0][::-1], None, 100000.40760596, THREE[1]),
    "one masked": ([0, MASKED, 0], 1, (0.5, 0, 0.5), None, 0.69314718056, 0.69314718056),
    "all but one masked": ([MASKED, 5, MASKED], 1, (0, 1, 0), None, 5, 0),
    "T = 0.01": ([10, 9.99], 0.01, (0.73105857863, 0.26894142137), None, 1000.313261687518, 0.582203108888),
    "T = 1e-4": ([10, 9.99], 1e-4, (1, 3.72007597603e-44), (0, -100), 100000, 3.72e-42),
    "T = 2": ([3, 1, 0], 2, (0.628531719212, 0.231223897622, 0.140244383166), None, 1.9643687841, 0.905959256479),
    "T = 1e30": ([3, 1, 0], 1e30, (1 / 3,) * 3, None, 1.0986122886681098, 1.0986122886681098),
    "±88": ([88, -88], 1, (1, math.exp(-176)), (0, -176), 88, 6.45e-75),
    "3.4e38": ([3.4e38, 0], 1, (1, 0), (0, -3.4e38), 3.4e38, 0),
    "-3.4e38": ([-3.4e38] * 2, 1, (0.5, 0.5), None, -3.4e38, 0.69314718056),
    "a word of one": ([7], 1, (1,), None, 7, 0),
    "#17 [0, -inf]": ([0, MASKED], 1, (1, 0), None, 0, 0),
    "#17 [0, 0, -inf]": ([0, 0, MASKED], 1, (0.5, 0.5, 0), None, 0.69314718056, 0.69314718056),
    "#74 T = 1": ([1, 2, 3], 1, THREE[0], (-2.40760596444, -1.40760596444, -0.407605964444), 3.4076059644444, THREE[1]),
    "#74 T = 2": (
        [1, 2, 3],
        2,
        (0.18632372322585, 0.3071958857185, 0.50648039105565),
        (-1.6802696706417, -1.1802696706417, -0.68026967064173),
        2.180269670641735,
        1.0201913367268,
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_softmax(name):
    logits, temperature, probabilities, log_probabilities, log_z, entropy = DISTRIBUTIONS[name]
    log_probabilities = log_probabilities or logs(probabilities).tolist()
    told = K.softmax(rows(logits), [temperature])
    assert told.values[0].tolist() == pytest.approx(probabilities, rel=1e-9, abs=0)
    assert told.log_z.tolist() == pytest.approx([log_z], rel=1e-9, abs=1e-12)
    assert told.entropy.tolist() == pytest.approx([entropy], rel=1e-9, abs=1e-12)
    told = K.softmax(rows(logits), [temperature], "log_softmax")
    assert told.values[0].tolist() == pytest.approx(log_probabilities, rel=1e-9, abs=1e-12)
    assert K.softmax(rows(logits), [temperature], "logsumexp").values is None


@both
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_sampling_reports_the_same_entropy_and_probabilities(name, backend):
    logits, temperature, probabilities, _, _, entropy = DISTRIBUTIONS[name]
    answer = ask(logits, {"temperature": temperature}, backend)
    assert answer.entropy == answer.entropy_kept == pytest.approx(entropy, rel=1e-9, abs=1e-12)
    assert answer.kept == sum(logit > MASKED for logit in logits)
    assert answer.kept_mass == 1
    expected = {token: p for token, p in enumerate(probabilities) if p > 1e-9}
    assert distribution(logits, {"temperature": temperature}, backend) == pytest.approx(expected, rel=1e-9)


@both
@pytest.mark.parametrize("size", [32000, 128256, 151936, 262144])
def test_a_uniform_vocabulary_has_entropy_ln_v(size, backend):
    row = torch.full((size,), -3.25)
    answer = ask(row, {"temperature": 0.7}, backend)
    assert answer.entropy == pytest.approx(math.log(size), rel=1e-12)
    assert answer.logprobs == [pytest.approx(-math.log(size), rel=1e-12)]
    assert answer.kept == size
    told = K.softmax(K.DenseRows(row[None].double()), [0.7])
    assert told.entropy.tolist() == pytest.approx([math.log(size)], rel=1e-12)
    assert float((told.values * size - 1).abs().max()) < 1e-9


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_softmax_of_narrow_rows_is_float32(dtype):
    row = torch.tensor([[1.5, -2.25, 3.125, MASKED, 0.0]], dtype=FLOATS[dtype])
    told = K.softmax(K.DenseRows(row), [0.7])
    assert told.values.dtype == torch.float32
    assert told.values[0].tolist() == pytest.approx(softmax64(row[0], 0.7).tolist(), rel=1e-7)
    assert told.log_z.dtype == told.entropy.dtype == torch.float64


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_of_no_rows(kind):
    told = K.softmax(K.DenseRows(torch.zeros(0, 5)), [], kind)
    assert told.values is None or told.values.shape == (0, 5)
    assert told.log_z.shape == told.entropy.shape == (0,)
    assert told.faults == []


@both
def test_no_rows_have_no_answers(backend):
    assert K.sample(K.DenseRows(torch.zeros(0, 5)), backend=BACKENDS[backend]) == []
    assert K.sample(K.DenseRows(torch.zeros(0, 0)), backend=BACKENDS[backend]) == []


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("params", [{}, {"temperature": 0}, {"top_k": 3}, {"top_p": 0.1}, {"min_p": 1}])
def test_a_vocabulary_of_one(params, dtype, backend):
    answer = ask(torch.tensor([-3.0], dtype=FLOATS[dtype]), params, backend)
    assert (answer.tokens, answer.logprobs, answer.entropy, answer.kept, answer.kept_mass) == ([0], [0.0], 0.0, 1, 1.0)


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


# ---- Greedy ----


@both
@pytest.mark.parametrize(
    "params", [{"temperature": 0}, {"temperature": 0.0}, {"top_k": 1}, {"top_k": 1, "temperature": 2}]
)
@pytest.mark.parametrize(
    ("logits", "token"),
    [
        ([1, 1, 0], 0),  # 52
        ([0, 1, 1], 1),
        ([-1, -1], 0),
        ([0.0, -0.0], 0),
        ([-0.0, 0.0], 0),
        ([-1, -0.0, 0.0, -0.0], 1),
        ([0, 1e-8], 1),  # 53: log-probabilities of float32 would tie
        ([MASKED, -3.4e38, MASKED], 1),
        ([0] * 5000 + [1] * 5000, 5000),
        ([MASKED] * 6000 + [3, 3], 6000),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_lowest_id_of_the_largest_logit(logits, token, params, dtype, backend):
    answer = draw_at(torch.tensor(logits, dtype=FLOATS[dtype]), [1e-9, 0.5, 1.0], params, backend)
    assert (answer.tokens, answer.logprobs, answer.kept, answer.entropy_kept) == ([token] * 3, [0.0] * 3, 1, 0.0)


@both
def test_at_temperature_0_the_distribution_is_a_point(backend):
    answer = ask(
        [1, 3, 2], {"temperature": 0, "top_p": 0.5, "min_p": 0.1}, backend, logprobs=3, logprobs_mode="processed"
    )
    assert (answer.entropy, answer.entropy_kept, answer.kept, answer.kept_mass) == (0.0, 0.0, 1, 1.0)
    assert answer.top == RowLogprobs([0.0], [TopLogprob(1, 0.0)])


@both
def test_minus_zero_and_zero_tie_by_id(backend):
    row = torch.tensor([-0.0, 0.0, -1, 0.0, -0.0] + [-5.0] * 5000)
    for params in ({"top_k": 2}, {"top_k": 3}, {"top_p": 0.45}, {"top_k": 1025}, {}):
        walk = draw_at(row, [(place + 0.5) / 600 for place in range(600)], params, backend).tokens
        assert list(dict.fromkeys(walk))[:4] == [0, 1, 3, 4][: ask(row, params, backend).kept]
    assert ask(row, {"min_p": 1}, backend).kept == 4


# ---- Extreme temperatures and logits ----


@both
@pytest.mark.parametrize("temperature", [1e-4, 1e-38, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tiny_temperature_is_the_argmax_and_never_overflows(dtype, temperature, backend):  # 2
    row = torch.tensor([9.5, 10, 9.9, -3, MASKED, 10], dtype=FLOATS[dtype])
    answer = draw_at(row, [1e-9, 0.499, 0.501, 1.0], {"temperature": temperature}, backend)
    assert answer.tokens == [1, 1, 5, 5]
    assert answer.logprobs == pytest.approx([-math.log(2)] * 4)
    assert answer.entropy == pytest.approx(math.log(2))


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_huge_temperature_is_uniform(dtype, backend):
    row = torch.tensor([9.5, 10, MASKED, -3], dtype=FLOATS[dtype])
    answer = draw_at(row, [0.33, 0.34, 0.66, 0.67], {"temperature": 1e300}, backend)
    assert answer.tokens == [1, 0, 0, 3]
    assert answer.entropy == pytest.approx(math.log(3), rel=1e-12)


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [6, 5000])
def test_denormals_are_told_apart(size, dtype, backend):
    small = torch.finfo(FLOATS[dtype]).smallest_normal / 4
    row = torch.zeros(size, dtype=FLOATS[dtype])
    row[1:6] = torch.tensor([-small, small, small * 2, -0.0, small], dtype=torch.float64)
    assert 0 < float(row[2]) < float(row[3])
    assert ask(row, {"temperature": 0}, backend).tokens == [3]
    assert draw_at(row, [0.1, 0.4, 0.9], {"top_k": 3}, backend).tokens == [3, 2, 5]
    assert ask(row, {"min_p": 1}, backend).kept == 1
    assert ask(row, {"temperature": small, "min_p": 0.3}, backend).kept == 3


@both
def test_a_quotient_beyond_half_precision(backend):  # 2
    row = torch.tensor([10, 9.99], dtype=torch.float16)
    answer = draw_at(row, [1e-9, 1.0], {"temperature": 1e-4}, backend)
    assert (answer.tokens, answer.kept) == ([0, 0], 2)
    assert answer.logprobs == pytest.approx([0, 0], abs=1e-30)


@both
def test_half_precision_extremes(backend):  # 17
    row = torch.tensor([65504, -65504], dtype=torch.float16)
    answer = ask(row, {}, backend)
    assert (answer.tokens, answer.entropy, answer.logprobs) == ([0], 0.0, [0.0])


@both
@pytest.mark.parametrize("params", [{}, {"top_k": 1 << 30, "top_p": 1}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_a_one_hot_row_never_leaves_its_token(params, backend):  # 20, 29
    row = torch.full((151936,), MASKED, dtype=torch.float16)
    row[70_000] = 1.0
    answer = draw_at(row, [2**-54, 0.25, 0.5, 1 - 2**-53, 1.0], params, backend)
    assert (answer.tokens, answer.kept, answer.entropy) == ([70_000] * 5, 1, 0.0)
    assert ask(row, {**params, "n": 2000}, backend).tokens == [70_000] * 2000


@both
@pytest.mark.parametrize("size", [5, 5000])
def test_u_of_1_is_the_last_token_with_any_probability(size, backend):  # 23
    row = torch.full((size,), -2000.0)
    row[:3] = torch.tensor([0.3, 0.5, 0.1999999]).log()
    assert draw_at(row, [1.0], {}, backend).tokens == [2]
    assert draw_at(row, [1.0], {"top_k": 4}, backend).tokens == [2]


# ---- Edits ----

EDITS = {
    # name: (logits, parameters, ids of the mask or None, the distribution of what is left)
    "bias": ([1, 2, 3], {"logit_bias": {0: 2}}, None, {0: 0.4223188, 2: 0.4223188, 1: 0.1553624}),
    "bias of two": ([0, 0, 0], {"logit_bias": {"2": 1.0, "0": -1.0}}, None, {2: 0.665241, 1: 0.2447285, 0: 0.0900306}),
    "bias of nothing": ([0, 0], {"logit_bias": {}}, None, {0: 0.5, 1: 0.5}),
    "bias of -inf": ([1, 2, 3], {"logit_bias": {2: -INF}}, None, {1: 0.7310586, 0: 0.2689414}),
    "bias of null": ([1, 2, 3], {"logit_bias": {2: None}}, None, {1: 0.7310586, 0: 0.2689414}),
    "bias cannot unmask": ([MASKED, 2, 3], {"logit_bias": {0: 100}}, None, {2: 0.7310586, 1: 0.2689414}),
    "bias before temperature": ([0, 0], {"logit_bias": {1: 2}, "temperature": 2}, None, {1: 0.7310586, 0: 0.2689414}),
    "a huge bias": ([0, 1], {"logit_bias": {0: 9e299}, "top_p": 0.5}, None, {0: 1}),
    "ban": ([1, 2, 3], {"banned_ids": [2]}, None, {1: 0.7310586, 0: 0.2689414}),
    "ban twice": ([1, 2, 3], {"banned_ids": [2, 2]}, None, {1: 0.7310586, 0: 0.2689414}),
    "ban of nothing": ([0, 0], {"banned_ids": []}, None, {0: 0.5, 1: 0.5}),
    "ban wins over bias": ([1, 2, 3], {"banned_ids": [2], "logit_bias": {2: 50}}, None, {1: 0.7310586, 0: 0.2689414}),
    "allowed": ([1, 2, 3], {"allowed_ids": [0, 1]}, None, {1: 0.7310586, 0: 0.2689414}),
    "allowed and banned": (
        [1, 2, 3, 3],
        {"allowed_ids": [0, 1, 2], "banned_ids": [2]},
        None,
        {1: 0.7310586, 0: 0.2689414},
    ),
    "mask": ([1, 2, 3], {}, [0, 1], {1: 0.7310586, 0: 0.2689414}),
    "mask of everything": ([1, 1], {}, [0, 1], {0: 0.5, 1: 0.5}),
    "mask and allowed": ([1, 2, 3, 3], {"allowed_ids": [0, 1, 2]}, [0, 1, 3], {1: 0.7310586, 0: 0.2689414}),
    "mask and bias": ([1, 1, 3], {"logit_bias": {1: 1, 2: 9}}, [0, 1], {1: 0.7310586, 0: 0.2689414}),
    "edits before top_k": ([1, 2, 3], {"banned_ids": [2], "top_k": 2}, None, {1: 0.7310586, 0: 0.2689414}),
    "edits before top_p": ([0, 0, 9], {"banned_ids": [2], "top_p": 0.6}, None, {0: 0.5, 1: 0.5}),
    "edits before min_p": ([1, 2, 9], {"banned_ids": [2], "min_p": 0.3}, None, {1: 0.7310586, 0: 0.2689414}),
}


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EDITS)
def test_edit(name, dtype, backend):
    logits, params, allowed, expected = EDITS[name]
    mask = None if allowed is None else bitmask(allowed, len(logits))
    row = torch.tensor(logits, dtype=FLOATS[dtype])
    assert distribution(row, params, backend, mask) == pytest.approx(expected, abs=1e-6)
    assert ask(row, params, backend, mask).kept == len(expected)


@both
def test_a_finite_bias_is_added_in_float64(backend):
    row = torch.tensor([1.0, 1.1])  # float32(1.1) is 1.10000002
    assert ask(row, {"temperature": 0, "logit_bias": {0: 0.1}}, backend).tokens == [1]
    assert ask(row, {"temperature": 0, "logit_bias": {0: 0.1 + 3e-8}}, backend).tokens == [0]
    assert ask(row, {"temperature": 0, "logit_bias": {0: float(row[1]) - 1}}, backend).tokens == [0]


@both
@pytest.mark.parametrize("token", [0, 1, 30, 31, 32, 33, 63, 64, 69])
def test_bit_i_of_the_mask_is_token_i(token, backend):
    words = [0, 0, 0]
    words[token // 32] = -(2**31) if token % 32 == 31 else 1 << token % 32
    row = torch.arange(70.0)
    answer = draw_at(row, [1e-9, 1.0], {}, backend, torch.tensor([words], dtype=torch.int32))
    assert (answer.tokens, answer.kept) == ([token] * 2, 1)


@both
def test_a_mask_of_ones_allows_all_and_bits_beyond_the_vocabulary_nothing(backend):
    row = torch.arange(33.0)
    whole = torch.full((1, 2), -1, dtype=torch.int32)
    assert ask(row, {"n": 50}, backend, whole) == ask(row, {"n": 50}, backend)
    beyond = torch.tensor([[0, -2]], dtype=torch.int32)  # bits 33 to 63
    assert ask(row, {}, backend, beyond) == K.RowFault(0, "all_masked", "all_neginf", EMPTY)


EMPTY = "the mask, bias and bans leave no token"


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"allowed_ids": []}, None),
        ({"allowed_ids": [3]}, None),  # masked already
        ({"banned_ids": [0, 1, 2]}, None),
        ({"logit_bias": {0: None, 1: None, 2: None}}, None),
        ({"allowed_ids": [0, 1], "banned_ids": [0, 1]}, None),
        ({"allowed_ids": [0]}, [1, 2]),
        ({"banned_ids": [2]}, [2]),
        ({}, []),
        ({"temperature": 0}, []),
    ],
)
def test_edits_that_leave_nothing_fail_the_row(params, allowed, dtype, backend):
    mask = None if allowed is None else bitmask(allowed, 4)
    row = torch.tensor([1, 2, 3, MASKED], dtype=FLOATS[dtype])
    assert ask(row, params, backend, mask) == K.RowFault(0, "all_masked", "all_neginf", EMPTY)


# ---- Log-probabilities beside the draw ----


def tops(answer):
    return {top.token: top.logprob for top in answer.top.top}


@both
def test_raw_and_processed_logprobs(backend):  # 74
    params = {"temperature": 2, "top_k": 1}
    raw = ask([1, 2, 3], params, backend, logprobs=3)
    assert tops(raw) == pytest.approx({2: -0.407605964, 1: -1.407605964, 0: -2.407605964})
    assert raw.top.of_tokens == pytest.approx([-0.407605964])
    processed = ask([1, 2, 3], params, backend, logprobs=2, logprobs_mode="processed")
    assert tops(processed) == pytest.approx({2: -0.680269671, 1: -1.180269671})
    assert processed.top.of_tokens == pytest.approx([-0.680269671])
    assert raw.logprobs == processed.logprobs == [0.0]


@both
def test_raw_logprobs_see_the_row_before_its_edits(backend):
    answer = ask([1, 2, 3], {"banned_ids": [2], "temperature": 0}, backend, logprobs=1)
    assert (answer.tokens, answer.top.top[0].token) == ([1], 2)
    assert answer.top.of_tokens == pytest.approx([-1.407605964])


@both
def test_the_tops_are_in_the_total_order_and_without_what_is_masked(backend):
    row = torch.tensor([0.0, 1, 1, MASKED, 0] + [MASKED] * 5000)
    answer = ask(row, {}, backend, logprobs=5004)
    assert [top.token for top in answer.top.top] == [1, 2, 0, 4]
    assert sum(math.exp(top.logprob) for top in answer.top.top) == pytest.approx(1)


@both
def test_a_trace_tells_the_distribution_after_every_active_step(backend):
    params = {"min_p": 0.3, "top_k": 3, "top_p": 0.7}
    trace = ask(logs(FOUR), params, backend, trace=True).trace
    assert [(step.transform, step.kept) for step in trace] == [
        ("temperature", 4),
        ("min_p", 3),
        ("top_k", 3),
        ("top_p", 2),
    ]
    assert [step.kept_mass for step in trace] == pytest.approx([1, 0.9, 0.9, 0.7])


@both
@pytest.mark.parametrize("params", [{"top_k": 0}, {"top_k": -1}, {"top_p": 1}, {"min_p": 0}])
def test_a_trace_leaves_out_what_is_off(params, backend):
    assert [step.transform for step in ask(logs(FOUR), params, backend, trace=True).trace] == ["temperature"]
