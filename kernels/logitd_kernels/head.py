"""A row as a head and a tail: the N largest logits in the total order, and sums over prefixes of that order.

The total order is (logit descending, token id ascending). Masses are e^((x − M)/T) with M the row's maximum, so that
they are at most 1 and never overflow; energies are the same masses times (M − x)/T, which turns a sum into an entropy:
S = ln Σ mass + Σ energy / Σ mass.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `count` tokens of a row in the total order: their mass and energy, relative to the row's maximum."""

    count: int
    mass: float
    energy: float

    @property
    def entropy(self) -> float:
        """Entropy in nats of the renormalised prefix."""
        return max(0.0, math.log(self.mass) + self.energy / self.mass)


@dataclass(frozen=True, slots=True)
class RowStats:
    """Statistics of a whole row at one temperature: `max` M, `everything` as a Prefix, log Z = log Σ e^(x/T)."""

    max: float
    temperature: float
    everything: Prefix

    @property
    def log_z(self) -> float:
        """Log-partition function: ln Σ e^(x/T)."""
        return self.max / self.temperature + math.log(self.everything.mass)


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a row: its id, its processed logit and its 0-based place in the total order."""

    id: int
    logit: float
    rank: int


@dataclass(frozen=True)
class Head:
    """The largest logits of a row in the total order, with running sums at one temperature.

    Attributes:
        ids: [N] int64.
        logits: [N] float64, descending, equal logits by ascending id, all finite.
        max: M, the row's maximum.
        temperature: T > 0.
        complete: whether the head holds every finite logit of the row.

    Queries answer None when the answer lies beyond the head.
    """

    ids: Ids
    logits: Floats
    max: float
    temperature: float
    complete: bool

    @classmethod
    def sort(cls, ids: Ids, logits: Floats, maximum: float, temperature: float, complete: bool) -> Self:
        """Build a head from unsorted tokens; `ids` must ascend, so that a stable sort breaks ties by id."""
        order = np.argsort(-logits, kind="stable")
        return cls(ids[order], logits[order], maximum, temperature, complete)

    @cached_property
    def deltas(self) -> Floats:
        """(x − M)/T, [N] float64, at most 0; −inf where that is beyond float64."""
        with np.errstate(over="ignore"):
            return (self.logits - self.max) / self.temperature

    @cached_property
    def sums(self) -> tuple[Floats, Floats]:
        """Mass and energy of each prefix, [N] float64 each."""
        masses = np.exp(self.deltas)
        # Sequential sums: a prefix has the same bits whatever the head's length.
        return np.cumsum(masses), np.cumsum(masses * -np.maximum(self.deltas, -1e6))

    def prefix(self, count: int) -> Prefix:
        """Return the first `count` tokens, 1 ≤ count ≤ N."""
        masses, energies = self.sums
        return Prefix(count, float(masses[count - 1]), float(energies[count - 1]))

    def first(self, count: int) -> Prefix | None:
        """Return the `count` largest logits, or all there are."""
        if count <= len(self.ids):
            return self.prefix(count)
        return self.prefix(len(self.ids)) if self.complete else None

    def above(self, floor: float) -> Prefix | None:
        """Return every token with logit ≥ floor, and at least the first."""
        count = int(np.searchsorted(-self.logits, -floor, side="right"))
        if count == len(self.ids) and not self.complete:
            return None
        return self.prefix(max(count, 1))

    def reaching(self, mass: float) -> Prefix | None:
        """Return the smallest prefix whose mass is at least `mass`."""
        index = int(np.searchsorted(self.sums[0], mass, side="left"))
        if index < len(self.ids):
            return self.prefix(index + 1)
        return self.prefix(len(self.ids)) if self.complete else None

    def at(self, mass: float) -> Token | None:
        """Return the first token whose cumulative mass exceeds `mass`; of a complete head, else its last."""
        index = int(np.searchsorted(self.sums[0], mass, side="right"))
        if index >= len(self.ids):
            if not self.complete:
                return None
            index = int(np.searchsorted(self.sums[0], self.sums[0][-1], side="left"))  # last with any mass
        return self.token(index)

    def token(self, rank: int) -> Token:
        """Return the token at a 0-based place in the total order."""
        return Token(int(self.ids[rank]), float(self.logits[rank]), rank)
