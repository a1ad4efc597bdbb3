"""The reference: a full float64 sort, obviously right. The oracle of every test; not for serving."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Self

import torch

from logitd_kernels.head import Floats, Head, Ids, Prefix, RowStats, Token


class ReferenceRow:
    """An `OrderedRow` that sorts the whole row in float64.

    Args:
        logits: [V] float32 or float64, processed; −inf is a mask, at least one logit is finite.
        temperature: T > 0.
    """

    def __init__(self, logits: torch.Tensor, temperature: float) -> None:
        self.temperature = temperature
        self._logits = logits

    @cached_property
    def _all(self) -> Head:
        ordered, ids = torch.sort(self._logits.double(), descending=True, stable=True)
        finite = ordered > -torch.inf
        return Head(ids[finite].numpy(), ordered[finite].numpy(), float(ordered[0]), self.temperature, complete=True)

    @property
    def max(self) -> float:
        """The largest logit."""
        return self._all.max

    @property
    def stats(self) -> RowStats:
        """Whole-row statistics at this temperature."""
        return RowStats(self.max, self.temperature, self._all.prefix(len(self._all.ids)))

    @property
    def finite_count(self) -> int:
        """How many logits are not −inf."""
        return len(self._all.ids)

    def head(self, count: int) -> Head:
        """Return all finite logits in the total order."""
        return self._all

    def first(self, count: int) -> Prefix:
        """Return the `count` largest logits, or all finite ones."""
        return self._all.prefix(min(count, len(self._all.ids)))

    def above(self, floor: float) -> Prefix:
        """Return every token with logit ≥ floor."""
        return self._all.prefix(max(1, int((self._all.logits >= floor).sum())))

    def reaching(self, mass: float) -> Prefix:
        """Return the smallest prefix whose mass is at least `mass`."""
        prefix = self._all.reaching(mass)
        assert prefix is not None  # a complete head always answers
        return prefix

    def tokens_at(self, masses: Sequence[float]) -> list[Token]:
        """Return, for each mass, the first token whose cumulative mass exceeds it."""
        return [token for mass in masses if (token := self._all.at(mass)) is not None]

    def logit_of(self, token: int) -> float:
        """Return the logit of a token id."""
        return float(self._logits[token])

    def logits_of(self, kept: Prefix) -> Floats:
        """Return the logits of a prefix's tokens, descending."""
        return self._all.logits[: kept.count]

    def ids_of(self, kept: Prefix) -> Ids:
        """Return the ids of a prefix's tokens, in the order of `logits_of`."""
        return self._all.ids[: kept.count]

    def entropy(self, kept: Prefix) -> float:
        """Return the entropy in nats of a renormalised prefix."""
        return kept.entropy

    def at(self, temperature: float) -> Self:
        """Return the same row at another temperature > 0."""
        return self if temperature == self.temperature else type(self)(self._logits, temperature)

    def without(self, count: int) -> Self:
        """Return the row without its first `count` tokens."""
        logits = self._logits.clone()
        logits[torch.from_numpy(self._all.ids[:count])] = -torch.inf
        return type(self)(logits, self.temperature)

    def remapped(self, function: Callable[[Floats], Floats]) -> Self:
        """Return a row whose logits are `function` of (x − M)/T, at temperature 1."""
        logits = torch.full(self._logits.shape, -torch.inf, dtype=torch.float64)
        logits[torch.from_numpy(self._all.ids)] = torch.from_numpy(function(self._all.deltas))
        return type(self)(logits, 1.0)
