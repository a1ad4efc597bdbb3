"""Dialect `llama.cpp`, one step at a time, against llama.cpp's samplers."""

from collections import Counter

import pytest
import torch
from comparing import Row, Step, follow, real, rows
from differences import LLAMA, hold
from llama_chain import ABSENT, processed
from rows_of import INF

from logitd_kernels.sampling.order import order_of

pytestmark = pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
ORDER = order_of("llama.cpp")
TOLERANCE = 1e-5
STEPS = {
    "top_n_sigma": [{"top_n_sigma": value} for value in (0.5, 1.0, 2.0, 3.0)],
    "top_k": [{"top_k": value} for value in (1, 3, 40, 200, 200_000)],
    "typical_p": [{"typical_p": value} for value in (0.05, 0.2, 0.5, 0.95)],
    "top_p": [{"top_p": value} for value in (1e-8, 0.1, 0.4, 0.8, 0.95, 0.9999999)],
    "min_p": [{"min_p": value} for value in (1e-6, 0.05, 0.3, 1.0)],
    "xtc": [{"xtc_probability": 1.0, "xtc_threshold": value} for value in (1e-4, 0.01, 0.1, 0.3, 0.5, 0.7)],
    "temperature": [
        *({"temperature": value} for value in (0.3, 1.5, 20.0)),
        {"temperature": 1.0, "dynatemp_range": 0.5},
        {"temperature": 0.5, "dynatemp_range": 0.5, "dynatemp_exponent": 2.0},
        {"temperature": 0.8, "dynatemp_range": 3.0, "dynatemp_exponent": 0.5},
    ],
}


@pytest.mark.parametrize("name", STEPS)
def test_one_step(name):
    found = Counter()
    for row in rows():
        for params in STEPS[name]:
            follow(row, [Step(name, params)], processed, ORDER, found, TOLERANCE)
    hold(LLAMA, name, {kind for _, kind in found})


@pytest.mark.parametrize("name", STEPS)
def test_real_rows(name):
    row = without_the_impossible(real())
    follow(row, [Step(name, STEPS[name][2])], processed, ORDER, Counter(), TOLERANCE)


def without_the_impossible(row):
    """Mask what has no probability in float32: see test_llama_chains.py."""
    return Row(torch.where(row.logits > row.logits.max() - 80, row.logits, -INF))
