"""What a trace says in words: which parameter decided what could be drawn, and which had no effect.

Nothing is guessed: the chain runs once more without each active transform, and what comes out is compared.
"""

from collections.abc import Mapping, Sequence

from logitd_kernels.head import Floats, Ids
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
    without = [(one, truncated(row, _off([one], values), order.steps)) for one in active]
    deciding = [_said(one, values) for one, left in without if _truncates(one) and not _same(left, kept)]
    masking = f"; {' and '.join(deciding)} decided" if deciding else _enough(active, row, values, order, kept)
    return [_note(_said(one, values), _truncates(one), left, kept, masking) for one, left in without]


def _note(said: str, truncates: bool, without: Kept, kept: Kept, masking: str) -> str:
    if _same(without, kept):
        same = f"without it the same {_tokens(kept.count)} left, with the same probabilities"
        return f"{said} had no effect: {same}{masking}."
    is_other_set = (without.count, without.dropped) != (kept.count, kept.dropped)
    if truncates and is_other_set:
        return (
            f"{said} decided what could be drawn: {_tokens(kept.count)} left with {kept.mass:.4g} of the probability, "
            f"{without.count:,} without it."
        )
    change = f"the entropy drawn from is {kept.entropy:.4g} nats, {without.entropy:.4g} without it"
    if is_other_set:
        left = f"{_tokens(kept.count)} left and {without.count:,} without it"
        return f"{said} changed what could be drawn, {left}: {change}."
    return f"{said} decided how likely each is, not which can be drawn ({_tokens(kept.count)} left): {change}."


def _enough(active: Sequence[Transform], row: OrderedRow, values: Values, order: Order, kept: Kept) -> str:
    """Say which truncations would each have been enough, of a row where none is missed."""
    cuts = [one for one in active if _truncates(one)]
    alone = [(one, [other for other in cuts if other is not one]) for one in cuts]
    enough = [
        _said(one, values) for one, others in alone if _same(truncated(row, _off(others, values), order.steps), kept)
    ]
    return f"; each of {' and '.join(enough)} is enough" if len(enough) > 1 else ""


def _truncates(transform: Transform) -> bool:
    return isinstance(transform, TRUNCATING)


def _off(transforms: Sequence[Transform], values: Values) -> Mapping[str, object]:
    return {**values, **{one.parameter.name: one.parameter.neutral for one in transforms if one.parameter}}


def _same(one: Kept, other: Kept) -> bool:
    """Whether two distributions are the same: of many tokens, their number, mass and entropy are compared."""
    if (one.count, one.dropped) != (other.count, other.dropped):
        return False
    if one.count > _LIMIT:
        return abs(one.entropy - other.entropy) <= _SAME * max(1.0, one.entropy)
    (ids, shares), (others, weights) = _by_id(one), _by_id(other)
    return bool((ids == others).all() and abs(shares - weights).max() <= _SAME)


def _by_id(kept: Kept) -> tuple[Ids, Floats]:
    ids, shares = kept.shares()
    order = ids.argsort()
    return ids[order], shares[order]


def _said(transform: Transform, values: Values) -> str:
    assert transform.parameter is not None
    return f"{transform.parameter.name} {values[transform.parameter.name]:g}"


def _tokens(count: int) -> str:
    return f"{count:,} token is" if count == 1 else f"{count:,} tokens are"
