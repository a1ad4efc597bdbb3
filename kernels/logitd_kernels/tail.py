"""What a head and log Z say about the tail that was not sent.

With n tail tokens, each logit ≤ c, and R_T = Σ_tail e^(z/T), two inequalities carry a known R at one temperature to
another (Jensen's, since x ↦ x^r is convex for r ≥ 1, and z ≤ c), and log R_T is convex in β = 1/T. Everything here
is in logs, relative to the row's largest logit, in float64. Intervals carry the rounding of what the client sent.
"""

import math
import sys
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from logitd_kernels.errors import HeadError
from logitd_kernels.rows import HeadOfRow

_SLACK = 2.0**-22  # of float32 sums, on either side of the wire
_NOTHING = -math.inf


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval; of logs, so that `low` may be −inf."""

    low: float
    high: float

    def meet(self, other: "Interval") -> "Interval":
        """Intersect; rounding may leave the two a hair apart, then the gap itself is the answer."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Interval(low, high) if low <= high else Interval(high, low)


@dataclass(frozen=True)
class Tail:
    """The tail of one row: at most `count` tokens, each logit ≤ `ceiling` (relative to the row's maximum).

    `known` maps β = 1/T to the interval of log R at that temperature.
    """

    count: int
    ceiling: float
    known: dict[float, Interval]

    @classmethod
    def of(cls, head: HeadOfRow) -> "Tail":
        """Derive the tail from a head and its log Z.

        Raises:
            HeadError: log Z cannot belong to this head.
        """
        total = head.vocab_size if head.finite_count is None else head.finite_count
        deltas = head.logits - head.logits[0]
        tail = cls(total - len(head.ids), float(deltas[-1]), {})
        for place, temperature in enumerate(head.temperatures):
            log_z = float(head.log_z[place])
            if not math.isfinite(log_z):
                raise HeadError(f"log_z[{head.row}]", f"must be finite, got {log_z}")
            eps = 2.0**-24 if head.log_z_is_float32 else 2.0**-50
            relative = log_z - head.logits[0] / temperature
            margin = _SLACK + eps * (abs(log_z) + abs(head.logits[0] / temperature))
            tail.known[min(1 / temperature, sys.float_info.max)] = tail._remainder(
                relative, margin, deltas / temperature, head.row
            )
        return tail

    def log_mass(self, temperature: float) -> Interval:
        """Return the interval of log R_T."""
        if self.count == 0:
            return Interval(_NOTHING, _NOTHING)
        beta = min(1 / temperature, sys.float_info.max)
        if beta in self.known:
            return self.known[beta]
        bound = Interval(_NOTHING, math.log(self.count) + self.ceiling * beta)
        for sent, log_r in self.known.items():
            bound = bound.meet(self._carried(sent, log_r, beta))
        for (a, at_a), (b, at_b) in permutations(self.known.items(), 2):
            bound = bound.meet(_chord(a, at_a, b, at_b, beta))
        return bound

    def energy_bounds(self, mass: float, temperature: float) -> Interval:
        """Return the interval of Σ_tail −e^d·d for a tail of the given mass: all at the ceiling, or all alike."""
        if self.count == 0 or mass <= 0:
            return Interval(0.0, 0.0)
        low = mass * -self.ceiling / temperature
        return Interval(low, max(low, mass * math.log(self.count / mass)))

    def _remainder(self, log_z: float, margin: float, deltas: np.ndarray, row: int) -> Interval:
        """log(e^log_z − Σ_head e^d), with its rounding and against what `count` tokens can hold."""
        whole, head = math.exp(min(log_z, 700.0)), float(np.cumsum(np.exp(deltas))[-1])
        slack = math.expm1(min(margin, 700.0)) * (whole + head)
        log_capacity = math.log(self.count) + float(deltas[-1]) if self.count else _NOTHING
        rest = whole - head
        if rest + slack < 0:
            raise HeadError(f"log_z[{row}]", "is below the log-sum-exp of the head itself")
        if rest - slack > math.exp(log_capacity) * (1 + _SLACK):
            raise HeadError(
                f"log_z[{row}]", f"is more than {self.count} further tokens below the head's last logit can hold"
            )
        return Interval(_log(rest - slack), min(_log(rest + slack), log_capacity))

    def _carried(self, sent: float, log_r: Interval, beta: float) -> Interval:
        """Carry log R from one temperature to another."""
        ratio = beta / sent
        log_n = math.log(self.count)

        def jensen(value: float) -> float:
            return log_n + ratio * (value - log_n)

        def capped(value: float) -> float:
            return value + self.ceiling * (beta - sent)

        if ratio >= 1:
            return Interval(jensen(log_r.low), capped(log_r.high))
        return Interval(capped(log_r.low), jensen(log_r.high))


def _chord(a: float, at_a: Interval, b: float, at_b: Interval, beta: float) -> Interval:
    """Bound a convex function at `beta` by the line through its values at a and b."""
    share = (beta - a) / (b - a)
    if 0 < share < 1:  # between: below the chord
        return Interval(_NOTHING, at_a.high * (1 - share) + at_b.high * share)
    if share > 1 and at_b.low > _NOTHING < at_a.high:  # beyond b: above the extended chord
        return Interval(at_b.low + (at_b.low - at_a.high) * (share - 1), math.inf)
    return Interval(_NOTHING, math.inf)  # beyond a: the same pair the other way round


def _log(value: float) -> float:
    return math.log(value) if value > 0 else _NOTHING
