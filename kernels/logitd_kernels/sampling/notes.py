"""What a trace says in words: which parameter decided what could be drawn, and which had no effect.

Nothing is guessed: the chain runs once more without each active transform, and what comes out is compared.
"""

from collections.abc import Mapping

from logitd_kernels.sampling.chain import Kept, truncated
from logitd_kernels.sampling.order import Order
from logitd_kernels.sampling.transform import TRUNCATING, Transform, Values
from logitd_kernels.select.ordered import OrderedRow

_LIMIT = 1 << 14  # tokens compared one by one
_SAME = 1e-12


def notes_of(row: OrderedRow, values: Values, order: Order, kept: Kept) -> list[str]:
    """Return a note for each active step after the edits.

    Args:
        row: processed, at T = 1.
        values: of the row, with the seed that is used.
        order: of the steps.
        kept: what they left.
    """
    active = [transform for transform in order.steps if transform.active(values)]
    if kept.greedy:
        others = [_said(one, values) for one in active if one.name != "temperature"]
        masked = f" {', '.join(others)} had no effect: temperature 0 comes before all." if others else ""
        return [f"temperature 0 took the largest logit.{masked}"]
    return [_note(transform, row, values, order, kept) for transform in active]


def _note(transform: Transform, row: OrderedRow, values: Values, order: Order, kept: Kept) -> str:
    without = truncated(row, _off(transform, values), order.steps)
    said = _said(transform, values)
    if _same(without, kept):
        return f"{said} had no effect: without it the same {_tokens(kept.count)} left, with the same probabilities."
    if isinstance(transform, TRUNCATING) and (without.count, without.dropped) != (kept.count, kept.dropped):
        return (
            f"{said} decided what could be drawn: {_tokens(kept.count)} left with {kept.mass:.4g} of the probability, "
            f"{without.count:,} without it."
        )
    change = f"the entropy drawn from is {kept.entropy:.4g} nats, {without.entropy:.4g} without it"
    if (without.count, without.dropped) == (kept.count, kept.dropped):
        return f"{said} decided how likely each is, not which can be drawn ({_tokens(kept.count)} left): {change}."
    return f"{said} changed what could be drawn, {_tokens(kept.count)} left and {without.count:,} without it: {change}."


def _off(transform: Transform, values: Values) -> Mapping[str, object]:
    assert transform.parameter is not None
    return {**values, transform.parameter.name: transform.parameter.neutral}


def _same(one: Kept, other: Kept) -> bool:
    """Whether two distributions are the same: of many tokens, their number, mass and entropy are compared."""
    if (one.count, one.dropped) != (other.count, other.dropped):
        return False
    if one.count > _LIMIT:
        return abs(one.entropy - other.entropy) <= _SAME * max(1.0, one.entropy)
    (ids, shares), (others, weights) = one.shares(), other.shares()
    return bool((ids == others).all() and abs(shares - weights).max() <= _SAME)


def _said(transform: Transform, values: Values) -> str:
    assert transform.parameter is not None
    return f"{transform.parameter.name} {values[transform.parameter.name]:g}"


def _tokens(count: int) -> str:
    return f"{count:,} token is" if count == 1 else f"{count:,} tokens are"
