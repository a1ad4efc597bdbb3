"""Where a running weight along the total order crosses a target: a bisection with several pivots a round, no sort.

Every truncation and the draw ask for the largest logit v such that the tokens with logit ≥ v weigh at least `need`;
which of the tokens equal to v is meant follows from the weight that they share. Logits are compared as order-preserving
integer keys, and a bracket [low, high) of keys shrinks around v. Three pivots a round lie evenly in value, which suits
rows of logits; one halves the keys, so that no row whatever needs more than 64 rounds.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

PIVOTS = tl.constexpr(4)
LOWEST_KEY, HIGHEST_KEY = tl.constexpr(-0x7FFFFFFFFFFFFFFF), tl.constexpr(0x7FFFFFFFFFFFFFFF)


@triton.jit
def order_key(x):
    """Return int64 keys that ascend with float64 x; 0.0 and −0.0 share one."""
    bits = (x + 0.0).to(tl.int64, bitcast=True)
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)


@triton.jit
def key_value(key):
    """Return the float64 of an order key."""
    return (key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF)).to(tl.float64, bitcast=True)


@triton.jit
def place_pivots(low, high):
    """Return [PIVOTS] keys within (low, high), high − low ≥ 2."""
    place = tl.arange(0, PIVOTS)
    share = (place + 1).to(tl.float64) / PIVOTS
    even = order_key(key_value(low) * (1 - share) + key_value(high) * share)
    middle = (low >> 1) + (high >> 1)  # shifted first: the sum may pass 2**63
    return tl.minimum(tl.maximum(tl.where(place == PIVOTS - 1, middle, even), low + 1), high - 1)


@triton.jit
def shrink(low, high, pivots, reached):
    """Return the part of [low, high) from the last pivot that reaches the target to the first that does not."""
    return tl.max(tl.where(reached, pivots, low)), tl.min(tl.where(reached, high, pivots))


@triton.jit
def crossing(keys, weights, need):
    """Return the largest of some keys such that those not below it weigh at least `need`.

    Args:
        keys: [N] int64.
        weights: [N] int64; a key without weight is none.
        need: int64, from 1 to the sum of all weights.
    """
    some = weights > 0
    low = tl.min(tl.where(some, keys, HIGHEST_KEY))
    high = tl.max(tl.where(some, keys, LOWEST_KEY))  # of [low, high] both ends are among the keys
    by_value = True
    while low < high:
        even = order_key(0.5 * key_value(low) + 0.5 * key_value(high))
        pivot = tl.where(by_value, even, (low >> 1) + (high >> 1))
        pivot = tl.minimum(tl.maximum(pivot, low + 1), high)
        by_value = by_value == 0
        reached = tl.sum(tl.where(keys >= pivot, weights, 0)) >= need
        inside = some & tl.where(reached, (keys >= pivot) & (keys <= high), (keys >= low) & (keys < pivot))
        low = tl.min(tl.where(inside, keys, HIGHEST_KEY))
        high = tl.max(tl.where(inside, keys, LOWEST_KEY))
    return low
