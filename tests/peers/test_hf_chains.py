"""Dialect `hf`: chains in the order of `generate`, compared after every step."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from comparing import Step, follow, real
from differences import DIFFERENCES, HF, ROUNDING
from hugging_face import MAKE, processed
from rows_of import row_of
from sequences import random_row
from test_hf_edits import EDITS
from test_hf_truncation import TOLERANCE, VALUES

from logitd_kernels.sampling.order import DIALECTS, order_of

ORDER = order_of("hf")
MIDDLING = {name: values[1:-1] for name, values in VALUES.items()} | {"temperature": [0.5, 2.0], "top_h": [0.5, 0.9]}
STEPS = [Step(name, {name: value}) for name, values in MIDDLING.items() for value in values]


def test_the_dialect_has_their_order():
    assert [name for name in DIALECTS["hf"] if name in MAKE] == list(MAKE)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_chains(dtype):
    rng, found = np.random.default_rng(3), Counter()
    for _ in range(60):
        row = random_row(rng)
        row = replace(row, guidance=row_of("normal", len(row.logits)))
        _follow(row, _chain(rng, row), found, dtype)
    documented = {(one.transform, one.kind) for one in DIFFERENCES if one.peer == HF}
    assert {one for one in found if one[1] not in ("equal", ROUNDING)} <= documented
    assert sum(count for (_, kind), count in found.items() if kind == "equal") > 150


def test_a_chain_on_a_real_row():
    steps = [
        Step("repetition_penalty", {"repetition_penalty": 1.3}),
        Step("temperature", {"temperature": 0.8}),
        Step("top_p", {"top_p": 0.95}),
        Step("min_p", {"min_p": 1e-4}),
        Step("typical_p", {"typical_p": 0.9}),
    ]
    found = Counter()
    _follow(replace(real(), prompt=(1, 5), output=(7,)), steps, found, torch.float32)
    assert found.total() > 2


def _chain(rng, row):
    """Return some steps in their order; no edits where they leave nothing."""
    edits = [Step(name, EDITS[name](rng, row)) for name in EDITS if rng.random() < 0.4]
    edits += [Step("guidance", {"guidance_scale": 1.5})] if rng.random() < 0.2 else []
    edits = sorted(edits, key=lambda step: list(MAKE).index(step.name))
    if np.isnan(processed(row, edits, torch.float64)).any():
        edits = []
    steps = [step for step in STEPS if step.name != "top_h" or len(row.logits) <= 100]
    names = {step.name for step in steps if rng.random() < 0.4}
    return edits + [_one_of(rng, [step for step in steps if step.name == name]) for name in MAKE if name in names]


def _one_of(rng, steps):
    return steps[rng.integers(len(steps))]


def _follow(row, steps, found, dtype):
    follow(row, steps, lambda *one: processed(*one, dtype), ORDER, found, TOLERANCE[dtype])
