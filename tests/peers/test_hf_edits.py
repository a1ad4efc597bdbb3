"""Dialect `hf`: penalties, bans, bias and guidance against transformers' processors."""

from collections import Counter

import numpy as np
import pytest
import torch
from comparing import Row, Step, follow, ours, real
from differences import HF, allowed
from hugging_face import processed
from rows_of import INF, row_of
from sequences import random_row, some_ids

from logitd_kernels.sampling.order import order_of

ORDER = order_of("hf")
EDITS = {
    "repetition_penalty": lambda rng, row: {"repetition_penalty": float(rng.choice([0.5, 1.2, 2.0]))},
    "no_repeat_ngram": lambda rng, row: {"no_repeat_ngram_size": int(rng.integers(2, 5))},
    "bad_words": lambda rng, row: {"bad_words": words(rng, row)},
    "logit_bias": lambda rng, row: {"logit_bias": biases(rng, row)},
    "banned_ids": lambda rng, row: {"banned_ids": some_ids(rng, row, 2)},
    "min_tokens": lambda rng, row: {"min_tokens": int(rng.integers(1, 30)), "stop_ids": some_ids(rng, row, 2)},
}


def words(rng, row):
    """Return words that the sequence has begun, and others."""
    sequence = row.prompt + row.output
    begun = [[*sequence[-size:], int(rng.integers(len(row.logits)))] for size in (1, 2) if len(sequence) >= size]
    others = rng.integers(0, len(row.logits), (2, 3)).tolist()
    return [*begun, *others]


def biases(rng, row):
    """Return biases that float32, which theirs are, holds exactly."""
    return {token: int(rng.integers(-80, 80)) / 8 for token in some_ids(rng, row, 3)}


@pytest.mark.parametrize("name", EDITS)
def test_one_edit(name):
    rng, found = np.random.default_rng(7), Counter()
    while found.total() < 40:
        row = random_row(rng)
        step = Step(name, EDITS[name](rng, row))
        if _leaves_something(row, step):
            follow(row, [step], _double, ORDER, found, 1e-9)
    assert set(found) == {(name, "equal")}


def test_an_ngram_of_one_forbids_all_that_came():
    row = Row(row_of("normal", 33), prompt=(1, 2), output=(2, 5))
    follow(row, [Step("no_repeat_ngram", {"no_repeat_ngram_size": 1})], _double, ORDER, Counter(), 1e-9)


@pytest.mark.parametrize("name", EDITS)
def test_real_rows(name):
    rng = np.random.default_rng(1)
    row = Row(real().logits, prompt=(5, 6, 7, 5), output=(6, 7, 5, 6))
    step = Step(name, EDITS[name](rng, row))
    follow(row, [step], lambda *one: processed(*one, torch.float32), ORDER, Counter(), 1e-5)


@pytest.mark.parametrize("size", [5, 33, 1000])
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.5, 7.5])
def test_guidance(size, scale):
    row = Row(row_of("normal", size), guidance=row_of("normal", size, seed=1))
    follow(row, [Step("guidance", {"guidance_scale": scale})], _double, ORDER, Counter(), 1e-9)


def test_where_the_guide_rules_a_token_out_theirs_is_not_a_number():
    row = Row(torch.tensor([1.0, 0.0, -INF, 2.0]), guidance=torch.tensor([0.0, -INF, 1.0, 1.0]))
    step = Step("guidance", {"guidance_scale": 1.5})
    assert np.isnan(_double(row, [step])).all()
    given, free = (torch.log_softmax(logits.double(), -1) for logits in (row.logits, row.guidance))
    expected = torch.where(free == -INF, given, free + 1.5 * (given - free))
    np.testing.assert_allclose(ours(row, step.params, ORDER), torch.softmax(expected, -1), atol=1e-12)
    assert "not a number" in allowed(HF, "guidance")


def _double(row, steps):
    return processed(row, steps, torch.float64)


def _leaves_something(row, step):
    return not np.isnan(_double(row, [step])).all()
