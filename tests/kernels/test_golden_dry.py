"""Worked numbers: what DRY subtracts from which token.

Ids of public reports are known-faults rows.
"""

import math

import numpy as np
import pytest
from golden import both, one_thread  # noqa: F401  (a fixture)
from rows_of import ask, distribution, left_of

from logitd_kernels.sampling.dry import repeats
from logitd_kernels.sampling.order import order_of

LLAMA = order_of("llama.cpp")

# ---- llama.cpp's table: (probabilities, ids so far, parameters, window, what is left) ----

EVEN = (0.2,) * 5
FOURTH = (0.25,) * 4
DRY = [
    (FOURTH, [0, 1], {"dry_multiplier": 1}, 4, FOURTH),
    (FOURTH, [0, 1, 2, 0, 1], {"dry_multiplier": 1}, 5, (0.296923, 0.296923, 0.109232, 0.296923)),
    (EVEN, [0, 1, 3, 4, 0, 1], {"dry_multiplier": 1, "dry_breaker_ids": [3]}, 6, EVEN),
    (EVEN, [0, 1, 2, 0, 1], {"dry_multiplier": 2}, 5, (0.241818, 0.241818, 0.032727, 0.241818, 0.241818)),
    (EVEN, [0, 1, 2, 3, 4, 0, 1], {"dry_multiplier": 1, "dry_allowed_length": 4}, 7, EVEN),
]


@both
@pytest.mark.parametrize(("probabilities", "ids", "params", "window", "left"), DRY)
def test_dry(probabilities, ids, params, window, left, backend):
    params = {"dry_base": 1.1, "dry_allowed_length": 2, "dry_window": window, **params}
    for where in ({"prompt": ids}, {"prompt": ids[:3], "output": ids[3:]}):
        assert left_of(probabilities, params, backend, order=LLAMA, **where) == pytest.approx(left, abs=1e-6)


# ---- vLLM's: (ids so far, multiplier, base, allowed length, what is subtracted from which id) ----

SUBTRACTED = [
    ([1, 2, 3, 3, 2, 3, 9, 1, 2, 3], 1, 2, 1, {3: 4, 2: 1, 9: 2}),
    ([0, 0, 0, 1, 0, 0], 1, 2, 2, {0: 1, 1: 1}),
    ([1, 2, 3, 1, 2], 1, 2, 2, {3: 1}),
    ([7] * 6, 1, 2, 2, {7: 8}),
    ([1, 2, 3, 1, 2], 3, 2, 2, {3: 3}),  # 46: a repetition of just the allowed length costs the multiplier
    ([1, 2, 3, 1, 2], 3, 2, 1, {3: 6}),
]


@both
@pytest.mark.parametrize(("ids", "multiplier", "base", "allowed", "subtracted"), SUBTRACTED)
def test_what_dry_subtracts(ids, multiplier, base, allowed, subtracted, backend):
    params = {"dry_multiplier": multiplier, "dry_base": base, "dry_allowed_length": allowed}
    told = distribution([0.0] * 10, params, backend, prompt=ids)
    untouched = max(told.values())
    assert {t: math.log(untouched / p) for t, p in told.items() if p < untouched} == pytest.approx(subtracted, abs=1e-9)


@pytest.mark.parametrize(("base", "exponent"), [(2.0, 128), (1.75, 158)])
def test_the_power_of_dry_stops_where_a_float32_would(base, exponent):
    params = {"dry_multiplier": 1e-38, "dry_base": base, "dry_allowed_length": 1}

    def cost(length):  # the end was seen before, all of it
        ids = [*range(2, 2 + length), 1, *range(2, 2 + length)]
        told = ask([0.0] * 300, params, logprobs=300, logprobs_mode="processed", prompt=ids).top.top
        return told[0].logprob - next(top.logprob for top in told if top.token == 1)

    assert cost(101) == pytest.approx(1e-38 * base**100, rel=1e-9)
    assert cost(exponent + 1) == pytest.approx(1e-38 * base**exponent, rel=1e-6)
    assert cost(exponent + 2) == cost(exponent + 9) == pytest.approx(1e-38 * math.exp(88.7228391), rel=1e-6)


def longest(ids, breakers):
    """Lengths of repeats, counted in the plainest way."""
    found = {}
    for end in range(1, len(ids)):
        length = 0
        while length < end and ids[end - 1 - length] == ids[len(ids) - 1 - length] not in breakers:
            length += 1
        if length and ids[end] not in breakers:
            found[ids[end]] = max(found.get(ids[end], 0), length)
    return found


def test_repeats_are_those_counted_one_by_one():
    rng = np.random.default_rng(3)
    for _ in range(400):
        ids = rng.integers(0, rng.integers(2, 5), rng.integers(0, 14))
        breakers = tuple(rng.integers(0, 5, rng.integers(0, 2)).tolist())
        assert repeats(ids, breakers) == longest(ids.tolist(), breakers), (ids, breakers)
