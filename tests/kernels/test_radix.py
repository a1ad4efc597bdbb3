"""Weighted radix selection against a sort of the whole row."""

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows_of import INF, law

from logitd_kernels.select import radix
from logitd_kernels.select.radix import Crossing, crossings, order_keys

FLOATS = {"float32": np.float32, "float64": np.float64}
LEAF = radix._LEAF


def order_of(logits):
    """Return the ids in the total order (logit descending, id ascending)."""
    return sorted(range(len(logits)), key=lambda token: (-float(logits[token]), token))


def crossing_by_sorting(logits, weights, target, inclusive):
    """Walk the sorted row until the running weight reaches the target; beyond the total, the last with any weight."""
    running, last = 0.0, None
    for rank, token in enumerate(order_of(logits)):
        running += weights[token]
        last = Crossing(token, rank, running) if weights[token] or last is None else last
        if running > target or (inclusive and running == target):
            return Crossing(token, rank, running)
    return last


def awkward(dtype):
    """Values that are close in some digit of their keys and far in others."""
    info = np.finfo(dtype)
    width = 32 if dtype == np.float32 else 64
    special = [0.0, -0.0, -INF, 1.0, -1.0, info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal]
    near_one = st.integers(0, 40).map(lambda steps: float(dtype(1) + dtype(steps) * info.eps))
    return st.one_of(
        st.sampled_from(special), near_one, st.floats(width=width, allow_nan=False, max_value=float(info.max))
    )


@st.composite
def short_rows(draw, dtype):
    """A row [V] of at most 60 logits, and integer weights, so that every order of adding them is exact."""
    logits = np.array(draw(st.lists(awkward(dtype), min_size=1, max_size=60)), dtype)
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=len(logits), max_size=len(logits))), np.float64)
    weights[draw(st.integers(0, len(logits) - 1))] = 1.0  # of nothing at all there is no last token with weight
    return logits, weights


@st.composite
def long_rows(draw, dtype):
    """A row longer than a leaf, made of a few values many times over."""
    pool = np.array(draw(st.lists(awkward(dtype), min_size=1, max_size=60)), dtype)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.integers(LEAF + 1, 3 * LEAF))
    return rng.choice(pool, size), rng.integers(0, draw(st.sampled_from([2, 9])), size).astype(np.float64)


def targets_of(weights):
    """Every kind of target above 0: on a running weight, between two, the total and beyond, in no order."""
    total = float(weights.sum())
    targets = [
        total + 1,
        total / 3,
        total // 2,
        total // 2 + 0.5,
        total - 1,
        total - 0.5,
        total,
        2 * total,
        0.5,
        1.0,
        1.0,
    ]
    return [target for target in targets if target > 0]


def counting_descents():
    """Count calls of `descend`, which is what happens beyond a leaf."""
    return mock.patch.object(radix._Search, "descend", autospec=True, side_effect=radix._Search.descend)


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("inclusive", [True, False])
@given(st.data())
@law
def test_short_rows_cross_where_a_sort_says(inclusive, dtype, data):
    """With leaves of two tokens, so that even these rows are descended into digit by digit."""
    logits, weights = data.draw(short_rows(dtype))
    targets = targets_of(weights)
    with mock.patch.object(radix, "_LEAF", 2):
        told = crossings(order_keys(logits), weights, targets, inclusive=inclusive)
    assert told == [crossing_by_sorting(logits, weights, target, inclusive) for target in targets]


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("inclusive", [True, False])
@given(st.data())
@law
def test_long_rows_cross_where_a_sort_says(inclusive, dtype, data):
    logits, weights = data.draw(long_rows(dtype))
    targets = targets_of(weights)
    with counting_descents() as descents:
        told = crossings(order_keys(logits), weights, targets, inclusive=inclusive)
    assert descents.call_count > 1
    order = np.lexsort((np.arange(len(logits)), -logits))
    through = np.cumsum(weights[order])
    last = np.flatnonzero(weights[order]).max(initial=0)
    ranks = np.minimum(np.searchsorted(through, targets, side="left" if inclusive else "right"), last)
    assert told == [Crossing(int(order[rank]), int(rank), float(through[rank])) for rank in ranks]


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@given(st.data())
@law
def test_without_weights_it_counts_tokens(dtype, data):
    logits, _ = data.draw(long_rows(dtype))
    counts = sorted({1, 2, len(logits) // 2, LEAF, LEAF + 1, len(logits)})
    with counting_descents() as descents:
        told = crossings(order_keys(logits), None, counts, inclusive=True)
    assert descents.call_count > 1
    order = np.lexsort((np.arange(len(logits)), -logits))
    assert told == [Crossing(int(order[count - 1]), count - 1, float(count)) for count in counts]


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@given(st.data())
@law
def test_keys_ascend_as_logits_descend_and_equal_logits_share_one(dtype, data):
    logits = np.array(data.draw(st.lists(awkward(dtype), min_size=1, max_size=60)), dtype)
    before = logits.tobytes()
    keys = order_keys(logits)
    assert keys.dtype == f"u{np.dtype(dtype).itemsize}"
    ordered = order_of(logits)
    for one, other in pairwise(ordered):
        assert (keys[one] < keys[other]) == (logits[one] > logits[other])
        assert (keys[one] == keys[other]) == (logits[one] == logits[other])
    assert logits.tobytes() == before


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("spread", [0.001, 1.0, 30.0, 1000.0])
def test_masses_of_a_softmax_cross_where_a_sort_says(dtype, spread):
    """Masses that do not add exactly: every answer is right to the rounding of a sum."""
    rng = np.random.default_rng(3)
    logits = (rng.normal(0, 1, 20_000) * spread).astype(dtype)
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    order = np.lexsort((np.arange(len(logits)), -logits))
    through = np.cumsum(weights[order].astype(np.longdouble))
    targets = np.sort(rng.uniform(0, float(through[-1]), 300))
    with counting_descents() as descents:
        told = crossings(order_keys(logits), weights, targets.tolist(), inclusive=False)
    assert descents.call_count > 1
    for crossing, target in zip(told, targets, strict=True):
        assert order[crossing.rank] == crossing.id
        before = through[crossing.rank - 1] if crossing.rank else 0
        assert before <= target * (1 + 1e-12)
        assert target <= through[crossing.rank] * (1 + 1e-12)
        assert crossing.weight == pytest.approx(float(through[crossing.rank]), rel=1e-12)


def test_targets_may_come_in_any_order_and_more_than_once():
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 1, 3 * LEAF).astype(np.float32)
    weights = rng.integers(0, 5, len(logits)).astype(np.float64)
    targets = rng.integers(0, int(weights.sum()), 50).astype(float).tolist()
    keys = order_keys(logits)
    alone = [crossings(keys, weights, [target], inclusive=False)[0] for target in targets]
    assert crossings(keys, weights, targets, inclusive=False) == alone
    assert crossings(keys, weights, targets[::-1] + targets, inclusive=False) == alone[::-1] + alone
    assert crossings(keys, weights, [], inclusive=False) == []


@pytest.mark.parametrize("inclusive", [True, False])
def test_a_target_beyond_the_total_is_the_last_token_with_weight(inclusive):
    logits = np.arange(3.0 * LEAF)[::-1].astype(np.float32)
    weights = np.where(np.arange(len(logits)) < 2 * LEAF + 5, 1.0, 0.0)
    (told,) = crossings(order_keys(logits), weights, [1e9], inclusive=inclusive)
    assert told == Crossing(2 * LEAF + 4, 2 * LEAF + 4, 2 * LEAF + 5.0)


@pytest.mark.parametrize("size", [5, LEAF + 1])
def test_a_target_of_nothing_is_the_first_token_or_the_first_with_weight(size):
    keys = order_keys(np.zeros(size, np.float32))
    weights = np.where(np.arange(size) < 3, 0.0, 1.0)
    assert crossings(keys, weights, [0.0], inclusive=False) == [Crossing(3, 3, 1.0)]
    assert crossings(keys, weights, [0.0], inclusive=True) == [Crossing(0, 0, 0.0)]


def test_a_digit_that_adds_weight_only_by_rounding():
    """0.45 + 0.45 units in the last place of 1 are one; 0.45 alone are none, and its tokens are more than a leaf."""
    unit, many = np.finfo(np.float64).eps, LEAF + 100
    weights = np.array([1.0, 0.45 * unit, *[0.45 * unit / many] * many])
    keys = order_keys(np.log(weights))
    for target, inclusive in ((1.0, False), (1.0 + unit, True), (2.0, True), (2.0, False)):
        (told,) = crossings(keys, weights, [target], inclusive=inclusive)
        assert told.rank > 0
        assert told.id == told.rank


def test_equal_keys_longer_than_a_leaf_go_by_id():
    keys = order_keys(np.full(3 * LEAF, -0.0, np.float32))
    told = crossings(keys, np.ones(3 * LEAF), [LEAF + 0.5, 3 * LEAF - 1.0], inclusive=False)
    assert [crossing.id for crossing in told] == [LEAF, 3 * LEAF - 1]
