"""Dialect `llama.cpp`: bias, penalties and DRY against llama.cpp's samplers."""

from collections import Counter

import numpy as np
import pytest
from comparing import Row, Step, follow, real
from llama_chain import ABSENT, processed
from rows_of import row_of
from sequences import random_row, some_ids

from logitd_kernels.sampling.order import order_of

pytestmark = pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
ORDER = order_of("llama.cpp")
TOLERANCE = 1e-5


def penalties(rng):
    """Return all three as llama.cpp has them: over prompt and output, the last `penalty_window` tokens."""
    return {
        "repetition_penalty": float(rng.choice([0.8, 1.0, 1.3])),
        "frequency_penalty": float(rng.choice([-0.5, 0.0, 0.75])),
        "presence_penalty": float(rng.choice([0.0, 0.5])),
        "frequency_scope": "both",
        "presence_scope": "both",
        "penalty_window": int(rng.choice([1, 5, 64])),
    }


def dry(rng, row):
    """Return DRY's parameters, in half of the cases with breakers that the sequence holds."""
    breakers = sorted(set(row.prompt[:3])) if rng.random() < 0.5 else []
    return {
        "dry_multiplier": float(rng.choice([0.8, 2.0])),
        "dry_base": float(rng.choice([1.0, 1.1, 1.75])),
        "dry_allowed_length": int(rng.integers(1, 5)),
        "dry_window": int(rng.choice([0, 8, 64])),
        "dry_breaker_ids": breakers,
    }


def bias(rng, row):
    """Return a bias on a few tokens."""
    return {"logit_bias": {token: float(rng.normal(0, 4)) for token in some_ids(rng, row, 3)}}


EDITS = {"logit_bias": bias, "penalties": lambda rng, row: penalties(rng), "dry": dry}


@pytest.mark.parametrize("name", EDITS)
def test_one_edit(name):
    rng, found = np.random.default_rng(5), Counter()
    for _ in range(80):
        row = random_row(rng)
        follow(row, [Step(name, EDITS[name](rng, row))], processed, ORDER, found, TOLERANCE)
    assert found == {(name, "equal"): 80}


@pytest.mark.parametrize("name", EDITS)
def test_real_rows(name):
    row = Row(real().logits, prompt=(5, 6, 7, 5), output=(6, 7, 5, 6))
    follow(row, [Step(name, EDITS[name](np.random.default_rng(1), row))], processed, ORDER, Counter(), TOLERANCE)


def test_a_repetition_as_long_as_a_window_of_dry():
    params = {"dry_multiplier": 1.0, "dry_base": 1.75, "dry_allowed_length": 2}
    row = Row(row_of("normal", 33), output=(7,) * 40)
    follow(row, [Step("dry", params)], processed, ORDER, Counter(), TOLERANCE)
