"""The moment states of what lies beyond each window: sums over blocks of keys, put together without subtraction."""

from dataclasses import dataclass

import torch

from logitd_kernels.attention.hybrid.head import Head, Window
from logitd_kernels.attention.moment.state import add_moments, size_of

TILE = 32  # blocks that are worked on at once: few calls, and what belongs to them still near in the cache
SPARE = 2  # places before the first block, for what is carried


@dataclass(frozen=True)
class States:
    """Moment states, each on a log-scale of its own: sums [count, m · (dv + 1)], log_scale [count].

    An empty state has scale −inf and sums 0.
    """

    sums: torch.Tensor
    log_scale: torch.Tensor

    @classmethod
    def blank(cls, head: Head, count: int = 1) -> "States":
        """Return empty states."""
        size = size_of(head.basis) * (head.v.shape[1] + 1)
        return cls(head.v.new_zeros(count, size), head.v.new_full((count,), -torch.inf))

    @classmethod
    def unset(cls, head: Head, name: str, count: int) -> "States":
        """Return states in the head's scratch memory, to be written."""
        size = size_of(head.basis) * (head.v.shape[1] + 1)
        return cls(head.scratch.take(name, count, size), head.v.new_empty(count))

    def __getitem__(self, blocks: slice | torch.Tensor) -> "States":
        sums = self.sums[blocks] if isinstance(blocks, slice) else self.sums.index_select(0, blocks)
        return States(sums, self.log_scale[blocks])

    def put(self, place: int, state: "States") -> None:
        """Write one state."""
        self.sums[place], self.log_scale[place] = state.sums[0], state.log_scale[0]


def far_states(head: Head) -> States:
    """Return the state of what is far from each block of queries, from block `first` on.

    What precedes a tile's windows is carried from tile to tile, and so, backwards, is what follows them. Both are put
    where blocks stood that are no longer needed, just before the blocks of the windows; then all states of a tile are
    one matrix product. Sums are of positive weights only: none cancels.
    """
    window = head.window
    states = block_states(head)
    found = States.unset(head, "far_states", head.stop - head.first)
    after = {} if window.causal else _suffixes(head, states)
    edge = SPARE + head.first - window.before - head.low  # where the windows of a tile begin
    carried = _total(head, states[SPARE:edge])
    for start in range(head.first, head.stop, TILE):
        stop = min(start + TILE, head.stop)
        count = stop - start
        states.put(edge - 1, carried)
        if after:
            states.put(edge - 2, after[start])
        rows = states[edge - 1 - bool(after) : edge + count + window.blocks - 1]
        _merged(rows, _taken(window, count, len(rows.log_scale)), found[start - head.first : stop - head.first])
        carried = _total(head, states[edge - 1 : edge + count])
        edge += count
    return found


def block_states(head: Head) -> States:
    """Sum up every block of keys but the heavy ones, from block `low` on, behind some spare places."""
    basis, weights = head.basis, head.keys @ head.basis.query_centre + head.hidden  # ω
    states = States.unset(head, "block_states", SPARE + len(weights))
    states.log_scale[SPARE:] = weights.amax(1)
    lowest = torch.finfo(weights.dtype).min
    weights = torch.exp(weights - states.log_scale[SPARE:].clamp(min=lowest)[:, None])
    sums = states.sums[SPARE:].view(len(weights), size_of(basis), -1)
    for start in range(0, len(weights), TILE):
        tile = slice(start, start + TILE)
        keys = head.keys[tile]
        y = torch.bmm(basis.key_map.expand(len(keys), -1, -1), keys.mT)
        add_moments(sums[tile], keys, y, head.values[tile] * weights[tile, :, None], fresh=True)
    return states


def _taken(window: Window, count: int, rows: int) -> torch.Tensor:
    """Return which rows are far from each block of a tile: what is carried, and the blocks outside its own window."""
    near = torch.arange(rows) - (rows - (count + window.blocks - 1))  # 0 is the first block of the first window
    block = torch.arange(count)[:, None]
    before = near < block
    return before if window.causal else before | (near >= block + window.blocks)


def _suffixes(head: Head, states: States) -> dict[int, States]:
    """Return, by a tile's first block, the state of all blocks after its windows."""
    found: dict[int, States] = {}
    carried, edge = States.blank(head), len(states.log_scale)
    for start in reversed(range(head.first, head.stop, TILE)):
        stop = SPARE + min(start + TILE, head.stop) + head.window.after - head.low
        carried = found[start] = _sum(carried, _total(head, states[stop:edge]))
        edge = stop
    return found


def _merged(states: States, taken: torch.Tensor, out: States) -> States:
    """Add up the states that are taken, bool [count, states], for each of the sums in `out`."""
    exponents = states.log_scale.expand(taken.shape).masked_fill(~taken, -torch.inf)
    torch.amax(exponents, 1, out=out.log_scale)
    floor = out.log_scale.clamp(min=torch.finfo(exponents.dtype).min)[:, None]
    torch.mm(torch.exp(exponents - floor), states.sums, out=out.sums)
    return out


def _total(head: Head, states: States) -> States:
    """Return the sum of some states, of none an empty one."""
    count = len(states.log_scale)
    if not count:
        return States.blank(head)
    return _merged(states, torch.ones(1, count, dtype=torch.bool), States.blank(head))


def _sum(one: States, other: States) -> States:
    """Return the sum of two."""
    log_scale = torch.maximum(one.log_scale, other.log_scale)
    floor = log_scale.clamp(min=torch.finfo(log_scale.dtype).min)
    first, second = (torch.exp(each.log_scale - floor)[:, None] for each in (one, other))
    return States(torch.addcmul(one.sums * first, other.sums, second), log_scale)
