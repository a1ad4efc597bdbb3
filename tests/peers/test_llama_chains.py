"""Dialect `llama.cpp`: chains in llama.cpp's default order and in others, compared after every step."""

from collections import Counter

import numpy as np
import pytest
import torch
from comparing import Row, Step, follow, ours, real
from differences import DIFFERENCES, LLAMA, ROUNDING, allowed
from llama_chain import ABSENT, MAKE, processed
from rows_of import logs, row_of
from sequences import random_row
from test_llama_edits import EDITS, TOLERANCE
from test_llama_truncation import STEPS, without_the_impossible

from logitd_kernels.sampling.order import DIALECTS, order_of

pytestmark = pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
ORDER = order_of("llama.cpp")


def test_the_dialect_has_their_order():
    assert [name for name in DIALECTS["llama.cpp"] if name in MAKE] == [name for name in MAKE if name != "penalties"]


def test_chains_in_the_default_order():
    rng, found = np.random.default_rng(11), Counter()
    for _ in range(80):
        row = random_row(rng)
        edits = [Step(name, EDITS[name](rng, row)) for name in EDITS if rng.random() < 0.3]
        follow(row, edits + _cuts(rng, STEPS), processed, ORDER, found, TOLERANCE)
    _check(found)


def test_chains_in_any_order():
    rng, found = np.random.default_rng(12), Counter()
    for _ in range(80):
        names = tuple(rng.permutation(list(STEPS)).tolist())
        order = order_of("llama.cpp", names)
        follow(random_row(rng), _cuts(rng, names), processed, order, found, TOLERANCE)
    _check(found)


def test_a_chain_on_a_real_row():
    steps = [
        Step("logit_bias", {"logit_bias": {17: 1.5}}),
        Step("top_k", {"top_k": 5000}),
        Step("typical_p", {"typical_p": 0.9}),
        Step("top_p", {"top_p": 0.95}),
        Step("min_p", {"min_p": 1e-4}),
        Step("xtc", {"xtc_probability": 1.0, "xtc_threshold": 0.02}),
        Step("temperature", {"temperature": 1.0, "dynatemp_range": 0.5}),
    ]
    found = Counter()
    follow(without_the_impossible(real()), steps, processed, ORDER, found, TOLERANCE)
    assert found.total() > 3


# ---- What theirs does otherwise ----


def test_what_has_no_probability_spoils_their_typical():
    step = Step("typical_p", {"typical_p": 0.5})
    row = Row(logs([0.4, 0.2, 0.2, 0.2, 0.0], torch.float32))
    assert np.flatnonzero(ours(row, step.params, ORDER)).tolist() == [1, 2, 3]
    assert 0 in np.flatnonzero(processed(row, [step], masked=True))
    assert 0 not in np.flatnonzero(processed(row, [step]))
    assert "not a number" in allowed(LLAMA, "typical_p")


def test_what_top_n_sigma_drops_counts_for_their_dynamic_temperature():
    cut = Step("top_n_sigma", {"top_n_sigma": 1.0})
    heat = Step("temperature", {"temperature": 1.0, "dynatemp_range": 0.5})
    row = Row(row_of("normal", 33))
    kept = ours(row, cut.params, ORDER)
    left = kept[kept > 0]
    entropy = -np.sum(left * np.log(left))

    def at(count):
        heated = left ** (1 / (0.5 + entropy / np.log(count)))
        return heated / heated.sum()

    np.testing.assert_allclose(ours(row, {**cut.params, **heat.params}, ORDER)[kept > 0], at(len(left)), atol=1e-9)
    np.testing.assert_allclose(processed(row, [cut, heat])[kept > 0], at(33), atol=1e-6)
    assert "count" in allowed(LLAMA, "dynatemp")


def test_at_temperature_0_theirs_takes_the_largest_that_is_left():
    steps = [Step("xtc", {"xtc_probability": 1.0, "xtc_threshold": 0.05}), Step("temperature", {"temperature": 0.0})]
    row = Row(logs([0.1, 0.5, 0.4], torch.float32))
    assert processed(row, steps).tolist() == [1, 0, 0]
    assert ours(row, {**steps[0].params, **steps[1].params}, ORDER).tolist() == [0, 1, 0]
    assert processed(row, steps[1:]).tolist() == [0, 1, 0]
    assert "greedy last" in allowed(LLAMA, "temperature")


def _cuts(rng, names):
    """Return some steps, and of them none that top_n_sigma confuses: see above."""
    chosen = [Step(name, STEPS[name][rng.integers(len(STEPS[name]))]) for name in names if rng.random() < 0.6]
    if all(one.name != "top_n_sigma" for one in chosen):
        return chosen
    return [one for one in chosen if one.name != "typical_p" and "dynatemp_range" not in one.params]


def _check(found):
    documented = {(one.transform, one.kind) for one in DIFFERENCES if one.peer == LLAMA}
    assert {one for one in found if one[1] not in ("equal", ROUNDING)} <= documented
    assert sum(count for (_, kind), count in found.items() if kind == "equal") > 150
