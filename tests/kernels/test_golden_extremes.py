"""Worked numbers: greedy rows, extreme temperatures and logits.

Ids of public reports are known-faults rows.
"""

import math

import pytest
import torch
from golden import MASKED, both, one_thread  # noqa: F401  (a fixture)
from rows_of import FLOATS, ask, draw_at

from logitd_kernels.sampling.result import RowLogprobs, TopLogprob

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
