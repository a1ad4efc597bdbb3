"""Dialect `hf`, one truncation at a time, against transformers' warpers in float32 and float64."""

from collections import Counter

import numpy as np
import pytest
import torch
from comparing import Row, Step, follow, kind_of, ours, real, rows
from differences import HF, hold
from hugging_face import processed
from rows_of import row_of

from logitd_kernels.sampling.order import order_of

ORDER = order_of("hf")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
VALUES = {
    "temperature": [0.3, 1.5, 20.0],
    "top_k": [1, 3, 40, 200_000],
    "top_p": [1e-8, 0.1, 0.4, 0.8, 0.95, 0.9999999],
    "min_p": [1e-6, 0.05, 0.3, 1.0],
    "typical_p": [0.05, 0.2, 0.5, 0.95],
    "epsilon_cutoff": [2.0**-14, 2.0**-7, 0.125, 0.5],
    "eta_cutoff": [2.0**-14, 2.0**-7, 0.0625, 0.5],
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_one_step(name, dtype):
    found = Counter()
    for row in rows():
        for value in VALUES[name]:
            _follow(row, [Step(name, {name: value})], found, dtype)
    hold(HF, name, {kind for _, kind in found})


def test_their_top_k_is_ours_with_all_ties():
    found = Counter()
    for row in rows():
        for count in VALUES["top_k"]:
            _follow(row, [Step("top_k", {"top_k": count, "ties": "all"})], found, torch.float64)
    assert set(found) == {("top_k", "equal")}


@pytest.mark.parametrize("name", VALUES)
def test_real_rows(name):
    _follow(real(), [Step(name, {name: VALUES[name][2]})], Counter(), torch.float32)


def test_top_h_is_the_same_up_to_100_tokens_and_beyond_them_theirs_over_the_first_100():
    found = Counter()
    for row in [*rows(), Row(row_of("normal", 100)), Row(row_of("normal", 101)), real()]:
        for share in (0.2, 0.5, 0.9, 1.0):
            found[_top_h(row, share)] += 1
    hold(HF, "top_h", found)


def _top_h(row, share):
    step = Step("top_h", {"top_h": share})
    before, mine = ours(row, {}, ORDER), ours(row, step.params, ORDER)
    other = processed(row, [step], torch.float64)
    same = ((mine > 0) == (other > 0)).all()
    if np.count_nonzero(before) > 100:
        _check_their_rule(before, other, share)
        return "equal" if same else "first 100"
    if not same:
        return kind_of(step, mine, other, before, 1e-11)
    np.testing.assert_allclose(other, mine, atol=1e-12)
    return "equal"


def _check_their_rule(before, other, share):
    falling = np.sort(before)[::-1]
    first = falling[:100] / falling[:100].sum()
    energies = np.cumsum(-first * np.log(first))
    count = np.count_nonzero(other)
    assert (np.sort(before[other > 0])[::-1] == falling[:count]).all()
    budget = share * energies[-1]
    assert count == 1 or energies[count - 1] <= budget + 1e-11
    assert count == 100 or energies[count] > budget - 1e-11


def _follow(row, steps, found, dtype):
    follow(row, steps, lambda *one: processed(*one, dtype), ORDER, found, TOLERANCE[dtype])
