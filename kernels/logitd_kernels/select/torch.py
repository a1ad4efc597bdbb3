"""The portable fast path: vectorised sweeps in torch, a small sorted head, weighted radix selection beyond it."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.head import Floats, Head, Ids, Prefix, RowStats, Token
from logitd_kernels.select.radix import Crossing, crossings, order_keys

_CHUNK = 1024  # sums are of this many at a time, whatever the thread count
_NARROW, _WIDE = 64, 1024  # head sizes tried before the radix selection
_SORTED_WHOLE = 4096  # a row this short is its own head

Answer = TypeVar("Answer", Prefix, Token)


class TorchRow:
    """An `OrderedRow` over one contiguous row.

    Logits are compared in their own precision, masses are float64 throughout, so that a token is the reference's but
    for the last rounding of a sum. Nothing depends on other rows or on torch's thread count.

    Args:
        logits: [V] float32 or float64, processed; −inf is a mask, at least one logit is finite.
        temperature: T > 0.
    """

    def __init__(self, logits: torch.Tensor, temperature: float) -> None:
        self.temperature = temperature
        self._row = logits
        self._logits: NDArray[np.floating] = logits.numpy()
        self._heads: dict[int, Head] = {}

    @cached_property
    def max(self) -> float:
        """The largest logit."""
        return float(self._row.max())

    @cached_property
    def _sweep(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(x − M)/T and its exponential, each [V] padded to whole chunks with no mass."""
        size = -(-len(self._row) // _CHUNK) * _CHUNK
        deltas = torch.full((size,), -torch.inf, dtype=torch.float64)
        deltas[: len(self._row)] = self._row
        deltas.sub_(self.max).div_(self.temperature)
        return deltas, torch.exp(deltas)

    @cached_property
    def stats(self) -> RowStats:
        """Whole-row statistics at this temperature."""
        deltas, masses = self._sweep
        energies = deltas.clamp(min=-1e6).mul_(masses)  # the clamp: 0 · −inf is NaN, and no mass reaches so far
        count = int(np.count_nonzero(self._logits > -np.inf))
        return RowStats(self.max, self.temperature, Prefix(count, _chunked_sum(masses), -_chunked_sum(energies)))

    @property
    def finite_count(self) -> int:
        """How many logits are not −inf."""
        return self.stats.everything.count

    def head(self, count: int) -> Head:
        """Return at least the `count` largest logits, or all finite ones."""
        size = next((size for size in (_NARROW, _WIDE) if count <= size), count)
        if len(self._logits) <= _SORTED_WHOLE:
            size = len(self._logits)
        if size not in self._heads:
            self._heads[size] = self._collect(size)
        return self._heads[size]

    def first(self, count: int) -> Prefix:
        """Return the `count` largest logits, or all finite ones."""
        if count <= _WIDE or len(self._logits) <= _SORTED_WHOLE:
            prefix = self.head(count).first(count)
            assert prefix is not None  # the head was asked for that many
            return prefix
        if count >= self.stats.everything.count:
            return self.stats.everything
        return self._through(crossings(self._keys, None, [count], inclusive=True)[0].id)

    def above(self, floor: float) -> Prefix:
        """Return every token with logit ≥ floor."""
        return self._near(partial(Head.above, floor=floor)) or self._masked(self._logits >= self._not_below(floor))

    def reaching(self, mass: float) -> Prefix:
        """Return the smallest prefix whose mass is at least `mass`."""
        return self._near(partial(Head.reaching, mass=mass)) or self._through(
            crossings(self._keys, self._masses, [mass], inclusive=True)[0].id
        )

    def tokens_at(self, masses: Sequence[float]) -> list[Token]:
        """Return, for each mass, the first token whose cumulative mass exceeds it."""
        tokens = [self._near(partial(Head.at, mass=mass)) for mass in masses]
        deep = [mass for mass, token in zip(masses, tokens, strict=True) if token is None]
        found = iter(crossings(self._keys, self._masses, deep, inclusive=False) if deep else [])
        return [token or self._token(next(found)) for token in tokens]

    def logit_of(self, token: int) -> float:
        """Return the logit of a token id."""
        return float(self._logits[token])

    def logits_of(self, kept: Prefix) -> Floats:
        """Return the logits of a prefix's tokens, by id if it is the whole row, else descending."""
        if kept.count < self.stats.everything.count:
            return self.head(kept.count).logits[: kept.count]
        return self._logits[self._logits > -np.inf].astype(np.float64)

    def ids_of(self, kept: Prefix) -> Ids:
        """Return the ids of a prefix's tokens, in the order of `logits_of`."""
        if kept.count < self.stats.everything.count:
            return self.head(kept.count).ids[: kept.count]
        return np.flatnonzero(self._logits > -np.inf)

    def entropy(self, kept: Prefix) -> float:
        """Return the entropy in nats of a renormalised prefix."""
        return kept.entropy

    def at(self, temperature: float) -> Self:
        """Return the same row at another temperature > 0."""
        return self if temperature == self.temperature else type(self)(self._row, temperature)

    def without(self, count: int) -> Self:
        """Return the row without its first `count` tokens."""
        row = self._row.clone()
        row[torch.from_numpy(self.head(count).ids[:count])] = -torch.inf
        return type(self)(row, self.temperature)

    def remapped(self, function: Callable[[Floats], Floats]) -> Self:
        """Return a row whose logits are `function` of (x − M)/T, at temperature 1."""
        row = torch.full(self._row.shape, -torch.inf, dtype=torch.float64)
        finite = self._row > -torch.inf
        row[finite] = torch.from_numpy(function(self._sweep[0][: len(self._row)][finite].numpy()))
        return type(self)(row, 1.0)

    def _near(self, ask: Callable[[Head], Answer | None]) -> Answer | None:
        """Ask a narrow head, then a wide one."""
        return ask(self.head(_NARROW)) or ask(self.head(_WIDE))

    def _collect(self, count: int) -> Head:
        floor = -np.inf if len(self._logits) <= max(_SORTED_WHOLE, count) else self._floor(count)
        ids = np.flatnonzero(self._logits > floor if floor == -np.inf else self._logits >= floor)
        complete = len(ids) < count or floor == -np.inf
        if not complete and len(ids) > 2 * count:
            above = np.flatnonzero(self._logits > floor)
            ties = ids[self._logits[ids] == floor][: max(count - len(above), 0)]
            ids = np.sort(np.concatenate([above, ties]))
        return Head.sort(ids, self._logits[ids].astype(np.float64), self.max, self.temperature, complete)

    def _floor(self, count: int) -> float:
        """Return a logit that at least `count` tokens reach.

        The count-th largest of the maxima of narrow blocks is one, and fewer than `count` blocks hold anything larger,
        so at most count · width tokens are above it.
        """
        width = 64 if len(self._row) >= 64 * 2 * _WIDE else 16
        blocks = len(self._row) // width
        if count > blocks // 2:
            place = len(self._logits) - count
            return float(np.partition(self._logits, place)[place])
        maxima = self._row[: blocks * width].view(blocks, width).amax(1).numpy()
        return float(np.partition(maxima, blocks - count)[blocks - count])

    @cached_property
    def _keys(self) -> NDArray[np.unsignedinteger]:
        return order_keys(self._logits)

    @cached_property
    def _masses(self) -> Floats:
        return self._sweep[1][: len(self._logits)].numpy()

    def _through(self, token: int) -> Prefix:
        """Return the prefix that ends with a token id."""
        logit = self._logits[token]
        kept = self._logits > logit
        kept[: token + 1] |= self._logits[: token + 1] == logit
        return self._masked(kept)

    def _masked(self, kept: NDArray[np.bool_]) -> Prefix:
        count = int(np.count_nonzero(kept))
        if count == self.stats.everything.count:
            return self.stats.everything
        masses = self._masses[kept]
        deltas = self._sweep[0][: len(kept)].numpy()[kept]
        # np.sum adds pairwise in one thread; a BLAS dot would depend on the thread count.
        return Prefix(count, float(np.sum(masses)), float(-np.sum(masses * np.maximum(deltas, -1e6))))

    def _token(self, crossing: Crossing) -> Token:
        return Token(crossing.id, float(self._logits[crossing.id]), crossing.rank)

    def _not_below(self, floor: float) -> np.floating:
        """Return the smallest value of the row's dtype that is at least `floor`, so that comparing rounds nothing."""
        dtype = self._logits.dtype.type
        with np.errstate(over="ignore"):
            rounded = dtype(floor)
        return rounded if float(rounded) >= floor else np.nextafter(rounded, dtype(np.inf))


def _chunked_sum(values: torch.Tensor) -> float:
    return float(values.view(-1, _CHUNK).sum(1).sum())
