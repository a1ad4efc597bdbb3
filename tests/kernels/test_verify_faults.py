"""Drafts that end early, rows that fail alone, and what is refused."""

import math

import numpy as np
import pytest
import torch
from verifying import BASE, P, Q, each_seed, logits_of, one, speculation

import logitd_kernels as K
from logitd_kernels.errors import DtypeError, ParameterError, ShapeError
from logitd_kernels.sampling.acceptance import METHODS
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.verify import verify

NAN, INF = math.nan, math.inf
SEEDS = 60
every_method = pytest.mark.parametrize("method", METHODS)


# ---- Where a draft ends ----


@every_method
@pytest.mark.parametrize(
    ("ids", "length"), [([-1, -1], 0), ([-1, 1], 0), ([0, -1], 1), ([0, 1], 2)], ids=["none", "gap", "one", "both"]
)
def test_minus_one_is_never_accepted_and_the_target_is_sampled_there(ids, length, method):
    ends = [0.0, 0.0, 1.0]  # where the target goes on after the draft
    target = [P] * length + [ends] + [P] * (2 - length)
    answers = verify(speculation([target] * SEEDS, [ids] * SEEDS, [[P, P]] * SEEDS), each_seed(SEEDS), method=method)
    for answer in answers:  # q = p: all that is there is accepted
        assert answer.tokens == [*ids[:length], 2, *[-1] * (2 - length)]
        assert (answer.accepted, len(answer.acceptance)) == (length, length)


@every_method
def test_lengths_end_the_drafts_of_their_rows(method):
    rows = speculation([[P] * 4] * 4, [[0, 1, 2]] * 4, [[P] * 3] * 4, lengths=[0, 1, 2, 3])
    answers = verify(rows, [BASE] * 4, method=method)
    assert [answer.accepted for answer in answers] == [0, 1, 2, 3]
    assert [answer.tokens.index(-1) if -1 in answer.tokens else 4 for answer in answers] == [1, 2, 3, 4]
    by_padding = speculation([[P] * 4] * 4, [[-1, -1, -1], [0, -1, -1], [0, 1, -1], [0, 1, 2]], [[P] * 3] * 4)
    assert verify(by_padding, [BASE] * 4, method=method) == answers


@every_method
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_a_draft_row_with_nan_is_rejected_and_the_target_sampled(kind, place, method):
    target = [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    sent = np.array([[1.0, 0, 0], [1.0, 0, 0]])
    sent[place, 2] = NAN
    answer = verify(speculation([target], [[0, 0]], **{kind: [sent]}), [BASE], method=method)[0]
    assert answer.tokens == [0] * (place + 1) + [-1] * (2 - place)
    assert answer.accepted == place
    assert len(answer.acceptance) == place


@pytest.mark.parametrize("logits", [[INF, 0, 0], [-INF, -INF, -INF]])
def test_draft_logits_that_nothing_can_be_drawn_from_are_rejected_too(logits):
    answer = verify(speculation([[P, P]], [[0]], logits=[[logits]]), [BASE])[0]
    assert (answer.accepted, len(answer.tokens), answer.tokens[1]) == (0, 2, -1)


# ---- Rows that fail alone ----


@every_method
@pytest.mark.parametrize(("value", "code"), [(NAN, "non_finite"), (INF, "non_finite"), (-INF, "all_masked")])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_target_position_fails_its_row_alone(place, value, code, method):
    rows = speculation([[P] * 3] * 3, [[0, 1]] * 3, [[Q] * 2] * 3)
    before = verify(rows, each_seed(3), method=method)
    rows.target_logits[1, place] = value
    after = verify(rows, each_seed(3), method=method)
    assert [after[0], after[2]] == [before[0], before[2]]
    assert (after[1].row, after[1].code) == (1, code)
    assert after[1].detail.startswith(f"position {place}: ")


def test_target_positions_behind_the_draft_are_not_looked_at():
    rows = speculation([[P] * 3], [[0, -1]], [[P] * 2])
    rows.target_logits[0, 2] = NAN
    assert verify(rows, [BASE])[0].accepted == 1


@every_method
@pytest.mark.parametrize(
    ("q", "detail"),
    [
        ([0.1, 0.6, 0.2], "the probabilities sum to 0.9; expected 1 within 0.001"),
        ([0, 0, 0], "the probabilities sum to 0; expected 1 within 0.001"),
        ([0.5, 1.0, -0.5], "the probability of token 2 is -0.5; expected finite numbers ≥ 0"),
        ([0.5, INF, 0.5], "the probability of token 1 is inf; expected finite numbers ≥ 0"),
        ([0.5, 0.5, -INF], "the probability of token 2 is -inf; expected finite numbers ≥ 0"),
    ],
)
def test_what_is_no_distribution_fails_its_row_alone(q, detail, method):
    rows = speculation([[P] * 3] * 2, [[0, 1]] * 2, [[Q, q], [Q, Q]])
    bad, good = verify(rows, each_seed(2), method=method)
    assert (bad.row, bad.code, bad.detail) == (0, "bad_draft", f"draft position 1: {detail}")
    assert good.tokens


@pytest.mark.parametrize(
    ("dtype", "off", "is_fine"),
    [
        (torch.float64, 0.9e-3, True),
        (torch.float64, 1.1e-3, False),
        (torch.float32, 0.9e-3, True),
        (torch.float32, 1.1e-3, False),
        (torch.float16, 0.9e-2, True),
        (torch.bfloat16, 2e-2, False),
    ],
)
def test_sums_are_held_to_what_their_dtype_can_keep(dtype, off, is_fine):
    probs = torch.tensor([[[0.5 + off, 0.25, 0.25]]], dtype=dtype)
    [answer] = verify(Speculation(logits_of([[P, P]]), torch.tensor([[1]]), probs), [BASE])
    assert (not isinstance(answer, K.RowFault)) == is_fine
    if is_fine:  # q is what the draft was drawn from: the probabilities over their sum
        assert answer.acceptance == pytest.approx([0.2 * float(probs.double().sum()) / 0.25])


# ---- Refused ----


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


IDS = zeros(2, 1, dtype=torch.int64)
TARGET = zeros(2, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "kind", "field", "words"),
    [
        ({"target_logits": zeros(2, 2)}, ShapeError, "target_logits", "3 dimensions"),
        ({"target_logits": zeros(2, 1, 3)}, ShapeError, "target_logits", r"expected \[2, 2, vocab\]"),
        ({"target_logits": zeros(3, 2, 3)}, ShapeError, "target_logits", r"got \[3, 2, 3\]"),
        ({"target_logits": zeros(2, 2, 0)}, ShapeError, "target_logits", "at least one logit"),
        ({"target_logits": IDS[..., None]}, DtypeError, "target_logits", "got int64"),
        ({"draft_ids": zeros(2, 1)}, DtypeError, "draft_ids", "one of int32, int64, got float32"),
        ({"draft_ids": zeros(2, dtype=torch.int32)}, ShapeError, "draft_ids", "2 dimensions"),
        ({"draft_ids": zeros(0, 1, dtype=torch.int32)}, ShapeError, "draft_ids", "expected 2 rows"),
        ({"draft_ids": torch.tensor([[0], [3]])}, ParameterError, r"draft_ids\[1\]\[0\]", r"in \[0, 3\), got 3"),
        ({"draft_ids": torch.tensor([[-2], [0]])}, ParameterError, r"draft_ids\[0\]\[0\]", "got -2"),
        ({"draft_probs": zeros(2, 1, 4)}, ShapeError, "draft_probs", r"expected shape \[2, 1, 3\]"),
        ({"draft_probs": zeros(2, 1, 0)}, ShapeError, "draft_probs", r"got \[2, 1, 0\]"),
        ({"draft_probs": zeros(2, 2, 3)}, ShapeError, "draft_probs", r"got \[2, 2, 3\]"),
        ({"draft_logits": zeros(2, 3)}, ShapeError, "draft_logits", "3 dimensions"),
        ({"draft_probs": zeros(2, 1, 3), "draft_logits": zeros(2, 1, 3)}, ShapeError, "draft_logits", "not both"),
        ({"draft_lengths": torch.tensor([1])}, ShapeError, "draft_lengths", "expected 2 numbers, got 1"),
        ({"draft_lengths": torch.tensor([1, 2])}, ParameterError, r"draft_lengths\[1\]", r"in \[0, 1\], got 2"),
        ({"draft_lengths": torch.tensor([-1, 0])}, ParameterError, r"draft_lengths\[0\]", "got -1"),
        ({"draft_lengths": torch.tensor([0.0, 1.0])}, DtypeError, "draft_lengths", "got float32"),
    ],
)
def test_tensors_that_do_not_fit(arguments, kind, field, words):
    with pytest.raises(kind, match=f"^{field}: .*{words}"):
        Speculation(**{"target_logits": TARGET, "draft_ids": IDS, **arguments})


def test_rows_without_drafts_take_tensors_without_content():
    rows = Speculation(logits_of([[P]]), zeros(1, 0, dtype=torch.int64), draft_probs=zeros(1, 0, 0))
    assert verify(rows, [BASE])[0].accepted == 0
    assert verify(Speculation(zeros(0, 0, 0), zeros(0, 0, dtype=torch.int64)), []) == []


def test_parameters_that_do_not_fit():
    rows = speculation([[P, P]] * 2, [[0]] * 2, logits=logits_of([[Q]] * 2))
    with pytest.raises(ParameterError, match="method: must be one of standard, block, got 'typical'"):
        verify(rows, [BASE] * 2, method="typical")
    with pytest.raises(ParameterError, match=r"^params: expected one object for each of 2 rows, got 1"):
        verify(rows, [BASE])
    with pytest.raises(ParameterError, match=r"^draft_params: expected one object for each of 2 rows, got 1"):
        verify(rows, [BASE] * 2, [BASE])
    bad = K.check({"banned_ids": [3]})
    for own, draft, field in (([BASE, bad], None, "banned_ids"), ([BASE] * 2, [BASE, bad], "draft_params.banned_ids")):
        with pytest.raises(ParameterError, match="token id 3 is outside the vocabulary") as caught:
            verify(rows, own, draft)
        assert (caught.value.field, caught.value.row) == (field, 1)
    with pytest.raises(ParameterError, match="n: must be 1"):
        one([P, P], [0], n=2)


def test_nothing_that_was_sent_is_written_to():
    rows = Speculation(logits_of([[P, P]]), torch.tensor([[1]]), torch.tensor([[Q]]), draft_lengths=torch.tensor([1]))
    before = [tensor.clone() for tensor in (rows.target_logits, rows.draft_ids, rows.draft_probs)]
    verify(rows, [K.check({"logit_bias": {0: -1.0}, "top_p": 0.9, "banned_ids": [2]})])
    after = [rows.target_logits, rows.draft_ids, rows.draft_probs]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
