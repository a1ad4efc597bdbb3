"""The moment states of what lies beyond each window: sums over blocks of keys, put together without subtraction."""

from dataclasses import dataclass
from itertools import pairwise

import torch

from logitd_kernels.attention.hybrid.head import Head, Window
from logitd_kernels.attention.moment.state import add_moments, size_of

TILE = 32  # blocks that are worked on at once: few calls, and what belongs to them still near in the cache


@dataclass(frozen=True)
class States:
    """Moment states, each on a log-scale of its own: sums [count, m · (dv + 1)], log_scale [count].

    An empty state has scale −inf and sums 0.
    """

    sums: torch.Tensor
    log_scale: torch.Tensor

    @classmethod
    def unset(cls, head: Head, name: str, count: int) -> "States":
        """Return states in the head's scratch memory, to be written."""
        size = size_of(head.basis) * (head.v.shape[1] + 1)
        return cls(head.scratch.take(name, count, size), head.v.new_empty(count))

    def __getitem__(self, places: slice | torch.Tensor) -> "States":
        return States(self.sums[places], self.log_scale[places])


class Far:
    """What is far from each block of queries of a head.

    What precedes the windows of a tile of blocks is carried from tile to tile, and so, backwards, is what follows them.
    The blocks in between are added to each state that they are far for. Weights are positive: no sum cancels.

    Attributes:
        blocks: how many blocks of queries there are.
    """

    def __init__(self, head: Head) -> None:
        self.blocks = head.stop - head.first
        self._head, self._states = head, _block_states(head)
        self._carried = self._carry()

    def tile(self, start: int) -> States:
        """Return the states of the blocks from `start` on, a tile of them; good until the next is asked for."""
        blocks = torch.arange(start, min(start + TILE, self.blocks))
        return self._merge(blocks, States.unset(self._head, "far_tile", len(blocks)))

    def of(self, blocks: torch.Tensor) -> States:
        """Return the states of some blocks, [T] int64 in any order."""
        found = States.unset(self._head, "far", len(blocks))
        for start in range(0, self.blocks, TILE):
            places = ((blocks >= start) & (blocks < start + TILE)).nonzero()[:, 0]
            if len(places):
                some = self._merge(blocks[places], States.unset(self._head, "far_tile", len(places)))
                found.sums[places], found.log_scale[places] = some.sums, some.log_scale
        return found

    def _merge(self, blocks: torch.Tensor, out: States) -> States:
        """Put together the states of blocks of one tile."""
        tile = int(blocks[0]) // TILE
        first, last = self._windows(tile)
        near = self._states[first:last]
        _merged(near, _outside(self._head.window, blocks - tile * TILE, last - first), out, self._carried[tile])
        return out

    def _windows(self, tile: int) -> tuple[int, int]:
        """Return the bounds of the blocks of keys in the windows of a tile, as places of block states."""
        head, start = self._head, tile * TILE
        place = head.first + start - head.window.before - head.low
        return place, place + min(TILE, self.blocks - start) + head.window.blocks - 1

    def _carry(self) -> list[States]:
        """Return for each tile what precedes its windows and, unless causal, what follows them: one state or two."""
        tiles = range(-(-self.blocks // TILE))
        bounds = [self._windows(tile) for tile in tiles]
        before = self._sums([0, *(first for first, _ in bounds)])
        if self._head.window.causal:
            return before
        after = self._sums([len(self._states.log_scale), *(last for _, last in reversed(bounds))])[::-1]
        return [
            States(torch.cat([one.sums, other.sums]), torch.cat([one.log_scale, other.log_scale]))
            for one, other in zip(before, after, strict=True)
        ]

    def _sums(self, edges: list[int]) -> list[States]:
        """Return the states of all blocks between the first edge and each of the others, going up or down."""
        found, carried = [], None
        for one, other in pairwise(edges):
            passed = self._states[min(one, other) : max(one, other)]
            out = States(torch.empty_like(self._states.sums[:1]), torch.empty_like(self._states.log_scale[:1]))
            _merged(passed, torch.ones(1, len(passed.log_scale), dtype=torch.bool), out, carried)
            carried = out
            found.append(out)
        return found


def _block_states(head: Head) -> States:
    """Sum up every block of keys but the heavy ones, from block `low` on."""
    basis, weights = head.basis, head.keys @ head.basis.query_centre + head.hidden  # ω
    states = States.unset(head, "block_states", len(weights))
    torch.amax(weights, 1, out=states.log_scale)
    weights = torch.exp(weights - states.log_scale.clamp(min=torch.finfo(weights.dtype).min)[:, None])
    sums = states.sums.view(len(weights), size_of(basis), -1)
    for start in range(0, len(weights), TILE):
        tile = slice(start, start + TILE)
        keys = head.keys[tile]
        y = torch.bmm(basis.key_map.expand(len(keys), -1, -1), keys.mT)
        add_moments(sums[tile], keys, y, head.values[tile] * weights[tile, :, None], fresh=True)
    return states


def _outside(window: Window, blocks: torch.Tensor, near: int) -> torch.Tensor:
    """Return which near blocks are outside the window of each block, counted from its tile's start: [T, near]."""
    place, block = torch.arange(near), blocks[:, None]
    before = place < block
    return before if window.causal else before | (place >= block + window.blocks)


def _merged(states: States, taken: torch.Tensor, out: States, carried: States | None) -> None:
    """Add states up: those that are taken, bool [T, count], and all that are carried, into T states."""
    exponents = states.log_scale.expand(taken.shape).masked_fill(~taken, -torch.inf)
    if carried is not None:
        exponents = torch.cat([carried.log_scale.expand(len(taken), -1), exponents], 1)
    lowest = torch.finfo(exponents.dtype).min
    out.log_scale[:] = torch.nn.functional.pad(exponents, (0, 1), value=-torch.inf).amax(1)
    weights = torch.exp(exponents - out.log_scale.clamp(min=lowest)[:, None])
    more = len(exponents[0]) - len(states.log_scale)
    torch.mm(weights[:, more:], states.sums, out=out.sums)
    if carried is not None:
        out.sums.addmm_(weights[:, :more], carried.sums)
