"""A row of which only the head is known, at one assumed mass of its tail.

The tail's mass is an interval; every answer of the sampling chain is monotone in it. So the chain runs at both ends of
the interval, and what agrees there holds for every tail in between (`sampling/sample.py`).
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from logitd_kernels.errors import BadRow, HeadTooShort
from logitd_kernels.head import Head, Prefix, RowStats, Token
from logitd_kernels.rows import Edits, HeadOfRow
from logitd_kernels.tail import Interval, Tail

Answer = TypeVar("Answer", Prefix, Token)

# What leaves a head's answer open.
MASS_OPEN = "the mass asked for may end outside the head"
DRAW_OPEN = "the draw may fall outside the head"
TOKEN_OPEN = "the drawn token depends on the tail"
KEPT_OPEN = "the kept set depends on the tail"


def first_open(asked: int, certain: int) -> str:
    """Say that more of the largest logits are kept than are certain."""
    return f"top {asked} is asked and {certain} are certain"


def head_open(asked: int, certain: int) -> str:
    """Say that more logits have to be seen than are certain."""
    return f"{asked} logits are needed and {certain} are certain"


def floor_open(floor: float) -> str:
    """Say that a cut at a floor may keep tokens that were not sent."""
    return f"tokens outside the head may reach the floor of {floor:.6g}"


class ProcessedHead:
    """A head after its edits: which tokens are certainly on top, and what the tail may weigh.

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
        logits = edits.biased(head.ids, head.logits)
        left = logits > -np.inf
        forbidden, self._biases = self._tail_edits(edits)
        self._forbidden = forbidden + int((~left).sum())
        self._biased = any(bias != -np.inf for bias in edits.bias.values())
        # Of a tail that holds −inf already, the edits may forbid just those: they bound its size, and what it lost.
        outside = head.vocab_size - len(head.ids) - forbidden
        self.tail_count = min(self._tail.count, outside)
        self._removed = min(self._tail.count, forbidden)
        if not left.any():
            if self.tail_count == 0:
                raise BadRow.all_masked("the mask, bias and bans leave no token")
            raise HeadTooShort("the mask, bias and bans leave no token of the head")
        order = np.lexsort((head.ids, -logits))[: int(left.sum())]
        self.ids, self.logits = head.ids[order], logits[order]
        untouched = self.logits == head.logits[order]
        self.certain = self._count_certain(untouched)

    @property
    def finite_count(self) -> int | None:
        """How many tokens are left in the whole row, None when the caller did not say enough."""
        if self.tail_count == 0:
            return len(self.ids)
        whole = self._sent.finite_count == self._sent.vocab_size
        if self._sent.finite_count is None or (self._removed and not whole):
            return None
        return len(self.ids) + self.tail_count

    def sufficient(self, count: int) -> int | None:
        """Return a head size in which the `count` largest are certain, None where a bias may move any token."""
        if self._biased:
            return None
        return min(self._sent.vocab_size, count + self._forbidden)

    def tail_mass(self, temperature: float) -> Interval:
        """Return the interval of the tail's mass after the edits, relative to the largest logit left in the head."""
        if self.tail_count == 0:
            return Interval(0.0, 0.0)
        shift = (self._sent.logits[0] - self.logits[0]) / temperature
        log_r = self._tail.log_mass(temperature)
        each = _exp(self._tail.ceiling / temperature + shift)
        gained = sum(each * (_exp(b / temperature) - 1) for b in self._biases if b > 0)
        lost = self._removed + sum(1 for b in self._biases if b < 0)
        low, high = _exp(log_r.low + shift), _exp(log_r.high + shift)
        return Interval(max(0.0, low - lost * each), min(high, self.tail_count * each) + gained)

    def tail_energy(self, mass: float, temperature: float) -> Interval:
        """Return the interval of the tail's energy at a given mass; infinite where a bias reaches into the tail."""
        if self._biases:
            return Interval(-np.inf, np.inf)
        ceiling = float(self._sent.logits[0] + self._tail.ceiling - self.logits[0])
        return Tail(self.tail_count, min(ceiling, 0.0), {}).energy_bounds(mass, temperature)

    def _tail_edits(self, edits: Edits) -> tuple[int, list[float]]:
        """Count the tokens outside the head that the edits forbid, and list the biases on those they leave."""
        in_head = set(self._sent.ids.tolist())
        outside = {token: bias for token, bias in edits.bias.items() if token not in in_head}
        allowed = edits.allowed
        left = {token: bias for token, bias in outside.items() if allowed is None or allowed[token]}
        forbidden = sum(1 for bias in left.values() if bias == -np.inf)
        if allowed is not None:
            forbidden += edits.vocab_size - int(allowed.sum()) - int((~allowed[self._sent.ids]).sum())
        return forbidden, [bias for bias in left.values() if bias not in (0, -np.inf)]

    def _count_certain(self, untouched: np.ndarray) -> int:
        """Count the leading tokens that no tail token can precede.

        A tail logit equals the last one sent only with a larger id; a biased one may be anywhere up to ceiling + bias.
        """
        if self.tail_count == 0:
            return len(self.ids)
        last = float(self._sent.logits[-1])
        ceiling = last + max([0.0, *self._biases])  # rounds as the sum of a smaller logit would, or higher
        count = int((self.logits > ceiling).sum())
        if ceiling == last:
            while count < len(self.ids) and self.logits[count] == last and untouched[count]:
                count += 1
        return count


class PartialRow:
    """An `OrderedRow` over a processed head and one assumed tail mass.

    Args:
        head: the processed head.
        temperature: T > 0.
        tail_mass: the tail's mass relative to the largest logit of the head.
        lenient: answer from the head alone where the tail would be needed, instead of raising.
    Raises:
        HeadTooShort: from any query whose answer lies beyond the certain part of the head.
    """

    def __init__(self, head: ProcessedHead, temperature: float, tail_mass: float, *, lenient: bool = False) -> None:
        self.temperature = temperature
        self._processed = head
        self._tail_mass = tail_mass
        self._lenient = lenient
        certain = len(head.ids) if lenient else head.certain
        if certain == 0:
            raise HeadTooShort("a biased token outside the head could be the largest")
        complete = head.tail_count == 0 or lenient
        self._head = Head(head.ids[:certain], head.logits[:certain], float(head.logits[0]), temperature, complete)

    @property
    def max(self) -> float:
        """The largest logit."""
        return self._head.max

    @cached_property
    def stats(self) -> RowStats:
        """Whole-row statistics at this temperature; the energy is the head's alone."""
        known = Head(self._processed.ids, self._processed.logits, self.max, self.temperature, complete=True)
        inside = known.prefix(len(known.ids))
        count = len(known.ids) + self._processed.tail_count
        return RowStats(self.max, self.temperature, Prefix(count, inside.mass + self._tail_mass, inside.energy))

    def head(self, count: int) -> Head:
        """Return the certain part of the head."""
        if count > len(self._head.ids) and not self._head.complete:
            raise HeadTooShort(head_open(count, len(self._head.ids)), self._processed.sufficient(count))
        return self._head

    def first(self, count: int) -> Prefix:
        """Return the `count` largest logits."""
        detail = first_open(count, len(self._head.ids))
        return self._known(self._head.first(count), detail, self._processed.sufficient(count))

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
        return float(self._processed.logits[self._processed.ids == token][0])

    def _known(self, answer: Answer | None, detail: str, sufficient: int | None = None) -> Answer:
        if answer is None:
            raise HeadTooShort(detail, sufficient)
        return answer


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
