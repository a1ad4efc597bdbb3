"""Weighted radix selection: where a running sum along the total order crosses a target, without sorting the row.

Eleven bits of an order-preserving integer key are histogrammed at a time (count and weight); only the digits in which a
target falls are descended into, so the cost is linear in the row whatever its distribution.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd_kernels.head import Floats, Ids

Keys = NDArray[np.uint32] | NDArray[np.uint64]

_DIGIT_BITS = 11
_LEAF = 2048  # below this a stable sort is cheaper than another histogram


@dataclass(frozen=True, slots=True)
class Crossing:
    """The token at which the running weight crosses a target: its id, 0-based rank, and the weight through it."""

    id: int
    rank: int
    weight: float


def order_keys(logits: NDArray[np.floating]) -> Keys:
    """Return unsigned keys that ascend as the logits descend; −0.0 and 0.0 share one.

    Args:
        logits: [V] float32 or float64, no NaN.
    """
    raw: NDArray[Any] = (logits + logits.dtype.type(0.0)).view(f"u{logits.dtype.itemsize}")  # -0.0 + 0.0 is 0.0
    sign = raw.dtype.type(1 << (raw.dtype.itemsize * 8 - 1))
    # Positive floats ascend with their bits, so complement them; negative floats already descend as their bits ascend.
    return np.where(raw & sign, raw, ~raw & ~sign)


def crossings(keys: Keys, weights: Floats | None, targets: Sequence[float], *, inclusive: bool) -> list[Crossing]:
    """Return, for each target, the token at which the running weight along the total order reaches it.

    Args:
        keys: [V], from `order_keys`.
        weights: [V] float64, at least 0; None counts tokens instead.
        targets: running weights to look for.
        inclusive: True looks for running weight ≥ target, False for > target.
    Returns:
        One crossing a target; a target beyond the total answers the last token that has any weight.
    """
    order = np.argsort(np.asarray(targets, dtype=np.float64), kind="stable")
    ascending = np.asarray(targets, dtype=np.float64)[order]
    found: list[Crossing | None] = [None] * len(targets)
    search = _Search(keys, weights, "left" if inclusive else "right")
    members = np.arange(len(keys), dtype=np.int64)
    for place, crossing in search.descend(members, keys.dtype.itemsize * 8, 0, 0.0, ascending, order):
        found[place] = crossing
    return [crossing for crossing in found if crossing is not None]


@dataclass(frozen=True)
class _Search:
    keys: Keys
    weights: Floats | None
    side: str

    def descend(
        self, members: Ids, bits: int, rank: int, weight: float, targets: Floats, places: Ids
    ) -> Iterator[tuple[int, Crossing]]:
        """Yield (place, crossing) for ascending targets that fall among `members`, all alike above `bits`."""
        if len(members) <= _LEAF or bits == 0:
            yield from self._leaf(members, rank, weight, targets, places)
            return
        shift = max(bits - _DIGIT_BITS, 0)
        digits = (
            (self.keys[members] >> self.keys.dtype.type(shift)) & self.keys.dtype.type((1 << (bits - shift)) - 1)
        ).astype(np.intp)
        counts = np.bincount(digits)
        sums: Floats = np.bincount(digits, None if self.weights is None else self.weights[members]).astype(np.float64)
        through: Floats = weight + np.cumsum(sums)
        occupied = np.flatnonzero(counts)  # a target beyond the total must not lead into an empty digit
        chosen = occupied[self._find(through[occupied], targets)]
        ranks = np.cumsum(counts)
        for digit in np.unique(chosen):
            here = chosen == digit
            yield from self.descend(
                members[digits == digit],
                shift,
                rank + int(ranks[digit] - counts[digit]),
                float(through[digit - 1]) if digit else weight,
                targets[here],
                places[here],
            )

    def _leaf(
        self, members: Ids, rank: int, weight: float, targets: Floats, places: Ids
    ) -> Iterator[tuple[int, Crossing]]:
        ordered = members[np.argsort(self.keys[members], kind="stable")]  # members ascend, so ties are by id
        steps = np.ones(len(ordered)) if self.weights is None else self.weights[ordered]
        through = weight + np.cumsum(steps)
        for place, index in zip(places, self._find(through, targets), strict=True):
            yield int(place), Crossing(int(ordered[index]), rank + int(index), float(through[index]))

    def _find(self, through: Floats, targets: Floats) -> Ids:
        """Return where `through` crosses each target, clamped to the last place that adds weight."""
        last = np.searchsorted(through, through[-1], side="left")
        return np.minimum(np.searchsorted(through, targets, side=self.side), last)  # type: ignore[call-overload,no-any-return]
