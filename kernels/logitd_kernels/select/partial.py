"""A row of which only the head is known, at one assumed mass of its tail.

The tail's mass is an interval; every answer of the sampling chain is monotone in it. So the chain runs at both ends of
the interval, and what agrees there holds for every tail in between (`sampling/sample.py`).
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Self, TypeVar

from logitd_kernels.errors import HeadTooShort
from logitd_kernels.head import Floats, Head, Ids, Prefix, RowStats, Token
from logitd_kernels.select.known import Known
from logitd_kernels.select.openings import (
    COUNT_OPEN,
    DRAW_OPEN,
    MASS_OPEN,
    SHAPE_OPEN,
    first_open,
    floor_open,
    head_open,
)
from logitd_kernels.tail import Interval

Answer = TypeVar("Answer", Prefix, Token)

LIGHTEST, MIDDLE, HEAVIEST = -1, 0, 1  # what a row takes its tail to weigh
_ROUNDING = 2.0**-40  # of the dense sum an answer must agree with, whatever the backend's order of addition
_FAINT = 1e-300  # masses below lose digits


class PartialRow:
    """An `OrderedRow` over the certain part of a head and one assumed tail.

    Args:
        head: what is known of the row.
        temperature: T > 0.
        tail: the interval of the tail's mass at a temperature, relative to the largest logit of the head.
        end: LIGHTEST or HEAVIEST, the end of it to take, a rounding of the whole row beyond it; or its MIDDLE.
        lenient: answer from the head alone where the tail would be needed, instead of raising.
    Raises:
        HeadTooShort: from any query whose answer lies beyond the certain part of the head.
    """

    def __init__(
        self, head: Known, temperature: float, tail: Callable[[float], Interval], end: int, *, lenient: bool = False
    ) -> None:
        self.temperature = temperature
        self.known = head
        self._tail = tail
        self._end = end
        self._lenient = lenient
        certain = len(head.ids) if lenient else head.certain
        if certain <= 0:
            raise HeadTooShort("a biased token outside the head could be the largest")
        complete = head.tail_count == 0 or lenient
        self._head = Head(head.ids[:certain], head.logits[:certain], float(head.logits[0]), temperature, complete)

    @property
    def max(self) -> float:
        """The largest logit."""
        return self._head.max

    @cached_property
    def stats(self) -> RowStats:
        """Whole-row statistics at this temperature; the energy is the head's alone, the count the most there may be."""
        known = Head(self.known.ids, self.known.logits, self.max, self.temperature, complete=True)
        inside = known.prefix(len(known.ids))
        count = len(known.ids) + self.known.tail_count
        mass = inside.mass + self._tail_mass(inside.mass)
        return RowStats(self.max, self.temperature, Prefix(count, mass, inside.energy))

    @property
    def finite_count(self) -> int:
        """How many logits are not −inf."""
        if not self.known.counted and not self._lenient:
            raise HeadTooShort(COUNT_OPEN)
        return self.stats.everything.count

    def head(self, count: int) -> Head:
        """Return the certain part of the head."""
        if count > len(self._head.ids) and not self._head.complete:
            raise HeadTooShort(head_open(count, len(self._head.ids)), self.known.sufficient(count))
        return self._head

    def first(self, count: int) -> Prefix:
        """Return the `count` largest logits."""
        detail = first_open(count, len(self._head.ids))
        return self._known(self._head.first(count), detail, self.known.sufficient(count))

    def above(self, floor: float) -> Prefix:
        """Return every token with logit ≥ floor."""
        return self._known(self._head.above(floor), floor_open(floor))

    def reaching(self, mass: float) -> Prefix:
        """Return the smallest prefix whose mass is at least `mass`."""
        return self._known(self._head.reaching(mass), MASS_OPEN)

    def tokens_at(self, masses: Sequence[float]) -> list[Token]:
        """Return, for each mass, the first token whose cumulative mass exceeds it."""
        return [self._known(self._head.at(mass), DRAW_OPEN) for mass in masses]

    def logit_of(self, token: int) -> float:
        """Return the logit of a token id of the head."""
        return float(self.known.logits[self.known.ids == token][0])

    def logits_of(self, kept: Prefix) -> Floats:
        """Return the logits of a prefix's tokens, descending."""
        return self._inside(kept).logits[: kept.count]

    def ids_of(self, kept: Prefix) -> Ids:
        """Return the ids of a prefix's tokens, in the order of `logits_of`."""
        return self._inside(kept).ids[: kept.count]

    def entropy(self, kept: Prefix) -> float:
        """Return the entropy in nats of a renormalised prefix."""
        self._inside(kept)
        return kept.entropy

    def at(self, temperature: float) -> Self:
        """Return the same row at another temperature > 0."""
        return type(self)(self.known, temperature, self._tail, self._end, lenient=self._lenient)

    def without(self, count: int) -> Self:
        """Return the row without its first `count` tokens."""
        self.head(count + 1)
        left = self.known.without(count)
        shift = float(self.known.logits[0] - left.logits[0])

        def tail(temperature: float) -> Interval:
            """The same tail beside the largest logit that is left, which none of its tokens precedes."""
            before = self._tail(temperature)
            low = before.low * exp(shift / temperature) if before.low > _FAINT else 0.0
            high = max(before.high, _FAINT) * exp(shift / temperature) if shift / temperature < 700 else math.inf
            return Interval(min(low, left.tail_count), min(high, left.tail_count))

        return type(self)(left, self.temperature, tail, self._end, lenient=self._lenient)

    def remapped(self, function: Callable[[Floats], Floats]) -> Self:
        """Return a row whose logits are `function` of (x − M)/T, at temperature 1: any tail is open again."""
        if self.known.tail_count and not self._lenient:
            raise HeadTooShort(SHAPE_OPEN)
        logits = function((self.known.logits - self.max) / self.temperature)
        known = self.known.replaced(logits)
        return type(self)(known, 1.0, lambda _: Interval(0.0, 0.0), self._end, lenient=self._lenient)

    def _tail_mass(self, inside: float) -> float:
        tail = self._tail(self.temperature)
        slack = _ROUNDING * (inside + tail.high)
        if self._end == LIGHTEST:
            return tail.low - min(slack, 0.5)
        return tail.high + slack if self._end == HEAVIEST else (tail.low + tail.high) / 2

    def _inside(self, kept: Prefix) -> Head:
        """Return the head that holds a prefix; a lenient one holds all it can."""
        if kept.count > len(self._head.ids) and not self._lenient:
            raise HeadTooShort(SHAPE_OPEN, self.known.sufficient(kept.count))
        return self._head

    def _known(self, answer: Answer | None, detail: str, sufficient: int | None = None) -> Answer:
        if answer is None:
            raise HeadTooShort(detail, sufficient)
        return answer


def exp(value: float) -> float:
    """Return e^value, capped far beyond anything that could matter."""
    return math.exp(min(value, 700.0))
