"""A head after its edits: which tokens are certainly on top, and what the tail may weigh."""

from dataclasses import dataclass

import numpy as np

from logitd_kernels.edits import LEFT_NOTHING, Edits, Sum
from logitd_kernels.errors import BadRow, HeadTooShort
from logitd_kernels.rows import HeadOfRow
from logitd_kernels.select.known import Known
from logitd_kernels.select.partial import exp
from logitd_kernels.tail import Interval, Tail


@dataclass(frozen=True, slots=True)
class _Moved:
    """A token outside the head that an edit moves.

    Attributes:
        peak: the largest logit that it may have.
        bias: what is added to its logit, None where more than that is done to it.
        may_rise: whether anything is done that raises a logit.
    """

    peak: float
    bias: float | None
    may_rise: bool

    @property
    def falls(self) -> bool:
        """Whether it may have lost mass."""
        return self.bias is None or self.bias < 0

    def gained(self, temperature: float, each: float, largest: float) -> float:
        """Bound the mass that it may have gained, `each` the most that it had, both relative to the largest logit."""
        if self.bias is not None:
            return each * (exp(self.bias / temperature) - 1) if self.bias > 0 else 0.0
        return exp((self.peak - largest) / temperature) if self.may_rise else 0.0


class ProcessedHead:
    """A head as sent, after its edits.

    Attributes:
        ids, logits: of the tokens that are left, in the total order.
        tail_count: how many other tokens there may be.
        known: the same, for a row.

    Args:
        head: the head as sent.
        edits: what is done to the row's logits.
    Raises:
        BadRow: the edits leave no token of a row that has no tail (`all_masked`).
        HeadTooShort: they leave nothing of the head.
        HeadError: log Z cannot belong to this head.
    """

    def __init__(self, head: HeadOfRow, edits: Edits) -> None:
        self._sent = head
        self._tail = Tail.of(head)
        logits = edits.edited(head.ids, head.logits)
        left = logits > -np.inf
        forbidden, self._moved = self._outside(edits)
        self._forbidden = forbidden + int((~left).sum())
        self._moves = edits.moves
        # Of a tail that holds −inf already, the edits may forbid just those: they bound its size, and what it lost.
        outside = head.vocab_size - len(head.ids) - forbidden
        self.tail_count = min(self._tail.count, outside)
        self._removed = min(self._tail.count, forbidden)
        if not left.any():
            if self.tail_count == 0:
                raise BadRow.all_masked(LEFT_NOTHING)
            raise HeadTooShort(f"{LEFT_NOTHING} of the head")
        order = np.lexsort((head.ids, -logits))[: int(left.sum())]
        self.ids, self.logits = head.ids[order], logits[order]
        untouched = self.logits == head.logits[order]
        certain = self._count_certain(untouched)
        counted = self.finite_count is not None
        self.known = Known(self.ids, self.logits, certain, self.tail_count, counted, self._sufficient)

    @property
    def finite_count(self) -> int | None:
        """How many tokens are left in the whole row, None when the caller did not say enough."""
        if self.tail_count == 0:
            return len(self.ids)
        whole = self._sent.finite_count == self._sent.vocab_size
        if self._sent.finite_count is None or (self._removed and not whole):
            return None
        return len(self.ids) + self.tail_count

    def _sufficient(self, count: int) -> int | None:
        """Return a head size in which the `count` largest are certain, None where a bias may move any token."""
        if self._moves:
            return None
        return min(self._sent.vocab_size, count + self._forbidden)

    def tail_mass(self, temperature: float) -> Interval:
        """Return the interval of the tail's mass after the edits, relative to the largest logit left in the head."""
        if self.tail_count == 0:
            return Interval(0.0, 0.0)
        shift = (self._sent.logits[0] - self.logits[0]) / temperature
        log_r = self._tail.log_mass(temperature)
        each = exp(self._tail.ceiling / temperature + shift)
        gained = sum(one.gained(temperature, each, float(self.logits[0])) for one in self._moved)
        lost = self._removed + sum(one.falls for one in self._moved)
        low, high = exp(log_r.low + shift), exp(log_r.high + shift)
        return Interval(max(0.0, low - lost * each), min(high, self.tail_count * each) + gained)

    def tail_energy(self, mass: float, temperature: float) -> Interval:
        """Return the interval of the tail's energy at a given mass; infinite where an edit reaches into the tail."""
        if self._moved:
            return Interval(-np.inf, np.inf)
        ceiling = float(self._sent.logits[0] + self._tail.ceiling - self.logits[0])
        return Tail(self.tail_count, min(ceiling, 0.0), {}).energy_bounds(mass, temperature)

    def _outside(self, edits: Edits) -> tuple[int, list["_Moved"]]:
        """Count the tokens outside the head that the edits forbid, and list those that they move."""
        sent, allowed, last = self._sent.ids, edits.allowed, float(self._sent.logits[-1])
        ids = np.setdiff1d(edits.touched, sent)
        ids = ids if allowed is None else ids[allowed[ids]]
        peaks = edits.edited(ids, np.full(len(ids), last))  # no step turns an order round
        forbidden = int((peaks == -np.inf).sum())
        if allowed is not None:
            forbidden += edits.vocab_size - int(allowed.sum()) - int((~allowed[sent]).sum())
        sums = all(isinstance(step, Sum) for step in edits.steps)
        biases = [edits.bias[int(token)] if sums else None for token in ids]
        rises = any(step.raises for step in edits.steps)
        moved = [_Moved(float(peak), bias, rises) for peak, bias in zip(peaks, biases, strict=True)]
        return forbidden, [one for one in moved if one.peak > -np.inf and one.bias != 0]

    def _count_certain(self, untouched: np.ndarray) -> int:
        """Count the leading tokens that no tail token can precede.

        A tail logit equals the last one sent only with a larger id; a moved one may be anywhere up to its peak.
        """
        if self.tail_count == 0:
            return len(self.ids)
        last = float(self._sent.logits[-1])
        ceiling = max([last, *(one.peak for one in self._moved)])  # rounds as a smaller logit would, or higher
        count = int((self.logits > ceiling).sum())
        if ceiling == last:
            while count < len(self.ids) and self.logits[count] == last and untouched[count]:
                count += 1
        return count
