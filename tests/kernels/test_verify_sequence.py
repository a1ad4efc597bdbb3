"""A verification weighs each position as `sample` does there: with the step, and the sequence up to it."""

import numpy as np
import pytest
import torch
from verifying import P, Q, logits_of

import logitd_kernels as K
from logitd_kernels.errors import DtypeError, ParameterError, ShapeError
from logitd_kernels.sampling.acceptance import METHODS
from logitd_kernels.sampling.distribution import distribution
from logitd_kernels.sampling.order import order_of
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.verify import verify

SIZE, DRAFT = 12, [3, 5, 3]
RNG = np.random.default_rng(7)
TARGET = torch.from_numpy(RNG.normal(0, 2, (1, 4, SIZE)))
DRAFT_LOGITS = TARGET[:, :3] + torch.from_numpy(RNG.normal(0, 1, (1, 3, SIZE)))
PROMPT, OUTPUT = torch.tensor([[3, 1, -1]]), torch.tensor([[5, 2, 9, -1]])
KNOBS = [
    {},
    {"repetition_penalty": 1.7},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"no_repeat_ngram_size": 1},
    {"min_tokens": 5, "stop_ids": [5]},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"temperature": 0.7, "top_p": 0.9, "logit_bias": {3: 2.0}},
]


def expected_of(logits, knobs, sequence, order):
    """Return the distribution at each position, from `distribution` a row at a time."""
    found = []
    for place in range(logits.shape[1]):
        beside = dict(sequence)
        if sequence:
            sent = sequence.get("output_ids", torch.empty(1, 0, dtype=torch.int64))
            beside["output_ids"] = torch.cat([sent, torch.tensor([DRAFT[:place]], dtype=torch.int64)], 1)
        values = K.check({**knobs, "seed": 4, "step": 10 + place})
        found += distribution(K.DenseRows(logits[:, place], **beside), [values], order=order)
    return found


@pytest.mark.parametrize("dialect", ["vllm", "hf"])
@pytest.mark.parametrize(
    "sequence", [{}, {"prompt_ids": PROMPT}, {"prompt_ids": PROMPT, "output_ids": OUTPUT}, {"output_ids": OUTPUT.int()}]
)
@pytest.mark.parametrize("knobs", KNOBS, ids=lambda knobs: "-".join(knobs) or "none")
def test_positions_are_weighed_as_sample_weighs_them(knobs, sequence, dialect):
    order = order_of(dialect)
    rows = Speculation(TARGET, torch.tensor([DRAFT]), draft_logits=DRAFT_LOGITS, **sequence)
    values = [K.check({**knobs, "seed": 4, "step": 10})]
    p, q = (expected_of(logits, knobs, sequence, order) for logits in (TARGET, DRAFT_LOGITS))
    ratios = [min(1, a[x] / b[x]) if b[x] else float(a[x] > 0) for a, b, x in zip(p, q, DRAFT, strict=False)]
    assert verify(rows, values, order=order)[0].acceptance == ratios
    plain = Speculation(TARGET, torch.tensor([DRAFT]), **sequence)
    assert verify(plain, values, order=order)[0].acceptance == [a[x] for a, x in zip(p, DRAFT, strict=False)]


def test_penalties_count_the_draft():
    """The second draft token repeats the first: no bigram may come twice, so 3 cannot follow 1 again."""
    rows = Speculation(torch.zeros(1, 3, 4), torch.tensor([[1, 3]]), prompt_ids=torch.tensor([[1, 3]]))
    answer = verify(rows, [K.check({"seed": 1, "no_repeat_ngram_size": 2})])[0]
    assert answer.acceptance == [0.25, 0.0]
    assert 3 not in answer.tokens[1:2]


def test_the_last_step_is_followed_by_the_first():
    rows = Speculation(TARGET, torch.tensor([DRAFT]))
    values = [K.check({"seed": 1, "step": (1 << 32) - 1, "xtc_probability": 0.5})]
    answer = verify(rows, values)[0]
    for place, step in enumerate(((1 << 32) - 1, 0, 1)):
        own = K.check({"seed": 1, "step": step, "xtc_probability": 0.5})
        [p] = distribution(K.DenseRows(TARGET[:, place]), [own])
        assert answer.acceptance[place] == p[DRAFT[place]]


@pytest.mark.parametrize("knobs", [{"mirostat": 1}, {"mirostat": 2}, {"adaptive_target": 0.3}])
@pytest.mark.parametrize("side", ["target", "draft"])
def test_what_keeps_a_state_is_refused(side, knobs):
    rows = Speculation(logits_of([[P, P]]), torch.tensor([[1]]), draft_logits=logits_of([[Q]]))
    own, draft = ([K.check({"seed": 1, **values})] for values in ((knobs, {}) if side == "target" else ({}, knobs)))
    [name] = knobs
    with pytest.raises(ParameterError, match="keeps a state from token to token") as caught:
        verify(rows, own, draft)
    assert (caught.value.field, caught.value.row) == (name if side == "target" else f"draft_params.{name}", 0)


@pytest.mark.parametrize(
    ("name", "ids", "kind", "words"),
    [
        ("prompt_ids", torch.tensor([[3]]), ParameterError, r"prompt_ids\[0\]\[0\]: .*got 3"),
        ("output_ids", torch.tensor([[0, -2]]), ParameterError, r"output_ids\[0\]\[1\]: .*got -2"),
        ("prompt_ids", torch.tensor([[1], [1]]), ShapeError, "prompt_ids: expected 1 rows, got 2"),
        ("output_ids", torch.tensor([1]), ShapeError, r"output_ids: expected 2 dimensions \[rows, tokens\]"),
        ("output_ids", torch.tensor([[1.0]]), DtypeError, "output_ids: expected one of int32, int64, got float32"),
    ],
)
def test_sequences_that_do_not_fit(name, ids, kind, words):
    with pytest.raises(kind, match=words):
        Speculation(logits_of([[P, P]]), torch.tensor([[1]]), **{name: ids})


@pytest.mark.parametrize("method", METHODS)
def test_a_row_with_its_sequence_has_the_same_bits_in_any_batch(method):
    count = 6
    target = torch.from_numpy(RNG.normal(0, 2, (count, 3, SIZE)))
    ids, prompt = (
        torch.from_numpy(RNG.integers(SIZE, size=(count, 2))),
        torch.from_numpy(RNG.integers(-1, SIZE, (count, 5))),
    )
    rows = Speculation(target, ids, draft_logits=target[:, :2].flip(0), prompt_ids=prompt, output_ids=prompt.flip(0))
    values = [K.check({"seed": row, "repetition_penalty": 1.5, "frequency_penalty": 0.3}) for row in range(count)]
    whole = verify(rows, values, method=method)
    for row in range(count):
        assert verify(rows.part(row, row + 1), values[row : row + 1], method=method) == whole[row : row + 1]
