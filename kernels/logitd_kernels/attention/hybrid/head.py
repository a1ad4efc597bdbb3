"""One head of one sequence, cut into blocks of 64 positions: its keys, its window, and what is beyond."""

from dataclasses import dataclass
from functools import cached_property

import torch

from logitd_kernels.attention.hybrid.scratch import Scratch
from logitd_kernels.attention.moment.calibrate import Basis

BLOCK = 64


@dataclass(frozen=True)
class Window:
    """The blocks of keys that a block of queries sees exactly: its own, some before it and, unless causal, some after.

    In a causal call a query sees nothing past its own position, and what is before the window makes up the far keys.
    """

    before: int
    after: int
    causal: bool

    @property
    def blocks(self) -> int:
        """How many blocks a window has."""
        return self.before + self.after + 1


@dataclass(frozen=True)
class Parts:
    """What is exact in hybrid attention.

    Attributes:
        heavy: keys chosen by their mass on exact rows, not causal.
        sinks: the first so many keys, at least 1.
        near: blocks of 64 keys on either side of a query's own, not causal.
        recent: blocks of 64 keys before a query's own, causal.
        rows: queries of a head that an audit would report; half as many serve to choose heavy keys and fit
            coefficients, and half of these rows to decide on them.
    """

    heavy: int = 32
    sinks: int = 4
    near: int = 1
    recent: int = 4
    rows: int = 64

    def window(self, causal: bool) -> Window:
        """Return the window of a call."""
        return Window(self.recent, 0, True) if causal else Window(self.near, self.near, False)


@dataclass(frozen=True)
class Head:
    """A head, its tensors laid out in blocks: query i stands at position `offset` + i, key j at j.

    Attributes:
        q: [R, d], times the scale.
        k: [n, d].
        v: [n, dv].
        offset: the position of the first query.
        window: what is near.
        heavy: [S] int64, keys that every query sees exactly; the window and the far keys leave them out.
        basis: coordinates, without leading dims.
        scratch: where the blocks lie: of heads that share it only the last one's blocks are good.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    offset: int
    window: Window
    heavy: torch.Tensor
    basis: Basis
    scratch: Scratch

    @property
    def first(self) -> int:
        """The block in which the first query stands; below 0 for positions before the first key."""
        return self.offset // BLOCK

    @property
    def stop(self) -> int:
        """The block after that of the last query."""
        return -((-self.offset - len(self.q)) // BLOCK)

    @property
    def low(self) -> int:
        """The first block of the buffers: of the first key, or of the first query's window."""
        return min(0, self.first - self.window.before)

    @property
    def last(self) -> int:
        """The block after the last of the buffers: of the last key, or of the last query's window."""
        return max(-(-len(self.k) // BLOCK), self.stop + self.window.after)

    @property
    def start(self) -> int:
        """The place in the buffers of the block in which the window of the first block of queries begins."""
        return self.first - self.window.before - self.low

    @cached_property
    def queries(self) -> torch.Tensor:
        """Queries by block, padded with zeros: [stop − first, 64, d]."""
        blocks = self.stop - self.first
        start = self.offset - self.first * BLOCK
        if start == 0 and len(self.q) == blocks * BLOCK:
            return self.q.reshape(blocks, BLOCK, -1)
        padded = self.scratch.take("queries", blocks * BLOCK, self.q.shape[1])
        _inner(padded, start, len(self.q), 0.0).copy_(self.q)
        return padded.view(blocks, BLOCK, -1)

    @cached_property
    def keys(self) -> torch.Tensor:
        """Keys less their centre, by block, from block `low` on, padded with zeros: [blocks, 64, d]."""
        padded = self._buffer("keys", self.k.shape[1])
        torch.sub(self.k, self.basis.key_centre, out=_inner(padded, -self.low * BLOCK, len(self.k), 0.0))
        return padded.view(-1, BLOCK, padded.shape[1])

    @cached_property
    def values(self) -> torch.Tensor:
        """Values with a one behind each, by block, padded with zeros: [blocks, 64, dv + 1]."""
        padded = self._buffer("values", self.v.shape[1] + 1)
        inner = _inner(padded, -self.low * BLOCK, len(self.v), 0.0)
        inner[:, :-1], inner[:, -1] = self.v, 1
        return padded.view(-1, BLOCK, padded.shape[1])

    @cached_property
    def hidden(self) -> torch.Tensor:
        """What is added to scores: −inf for padding and heavy keys, else 0: [blocks, 64]."""
        padded = self._buffer("hidden", 1).flatten()
        inner = _inner(padded, -self.low * BLOCK, len(self.k), -torch.inf)
        inner.zero_()
        inner[self.heavy] = -torch.inf
        return padded.view(-1, BLOCK)

    def by_key(self, blocks: torch.Tensor) -> torch.Tensor:
        """Return keys, values or what is hidden without blocks and padding: [n, ...]."""
        return blocks.flatten(0, 1)[-self.low * BLOCK :][: len(self.k)]

    def windows(self, blocks: torch.Tensor) -> torch.Tensor:
        """Return the windows of query blocks, from block `first` on, as overlapping views: [stop − first, w · 64, ...].

        Args:
            blocks: keys, values or what is hidden, by block.
        """
        start = self.start * blocks.stride(0)
        shape = (self.stop - self.first, self.window.blocks * BLOCK, *blocks.shape[2:])
        return blocks.as_strided(shape, blocks.stride(), blocks.storage_offset() + start)

    def _buffer(self, name: str, columns: int) -> torch.Tensor:
        return self.scratch.take(name, (self.last - self.low) * BLOCK, columns)


def _inner(padded: torch.Tensor, start: int, count: int, fill: float) -> torch.Tensor:
    """Fill all but `count` rows from row `start` on; return these."""
    padded[:start] = fill
    padded[start + count :] = fill
    return padded[start : start + count]
