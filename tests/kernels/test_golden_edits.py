"""Worked numbers: edits, log-probabilities and the trace.

Ids of public reports are known-faults rows.
"""

import math

import pytest
import torch
from golden import FOUR, MASKED, both, one_thread  # noqa: F401  (a fixture)
from rows_of import FLOATS, INF, ask, bitmask, distribution, draw_at, logs

import logitd_kernels as K

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
