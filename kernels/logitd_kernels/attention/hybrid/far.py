"""The moment states of what lies beyond each window: sums over all blocks before it and, unless causal, behind it."""

import torch

from logitd_kernels.attention.hybrid.compiled import Compiled
from logitd_kernels.attention.hybrid.head import Head
from logitd_kernels.attention.hybrid.states import States, merge
from logitd_kernels.attention.moment.compiled import serves
from logitd_kernels.attention.moment.state import add_moments, size_of

TILE = 32  # blocks that are worked on at once: few calls, and what belongs to them still near in the cache


class Far:
    """What is far from each block of queries of a head: all blocks of keys before its window, and all behind it.

    Attributes:
        blocks: how many blocks of queries there are.
        before: what precedes block i of keys, i in [0, count].
        behind: block i of keys and what follows it; None in a causal call.
        compiled: the same head in compiled loops, where these serve it.
    """

    def __init__(self, head: Head) -> None:
        self.blocks = head.stop - head.first
        self._head, count = head, len(head.keys)
        self.before = States.unset(head, "before", count + 1)
        self.behind = None if head.window.causal else States.unset(head, "behind", count + 1)
        self.compiled = Compiled(head, self.before, self.behind) if serves(head.k.dtype) else None
        if self.compiled:
            self.compiled.sum_blocks()
        else:
            sum_blocks(head, self.before, self.behind)

    def of(self, blocks: torch.Tensor) -> States:
        """Return the states of some blocks of queries, [T] int64 counted from the head's first, in any order."""
        place = blocks + self._head.start
        found = self.before[place]
        if self.behind is not None:
            merge(found, self.behind[place + self._head.window.blocks], found)
        return found


def sum_blocks(head: Head, before: States, behind: States | None) -> None:
    """Sum up all blocks of keys that precede each, and each with all that follow it."""
    own = before[1:]
    _block_states(head, own)
    count = len(own.log_scale)
    if behind is not None:
        behind[count:].clear()
        for i in reversed(range(count)):
            merge(behind[i + 1 : i + 2], own[i : i + 1], behind[i : i + 1])
    before[:1].clear()
    for i in range(count):
        merge(before[i : i + 1], own[i : i + 1], own[i : i + 1])


def _block_states(head: Head, states: States) -> None:
    """Sum up every block of keys but the heavy ones, from block `low` on."""
    basis, weights = head.basis, head.keys @ head.basis.query_centre + head.hidden  # ω
    torch.amax(weights, 1, out=states.log_scale)
    weights = torch.exp(weights - states.log_scale.clamp(min=torch.finfo(weights.dtype).min)[:, None])
    sums = states.sums.view(len(weights), size_of(basis), -1)
    for start in range(0, len(weights), TILE):
        tile = slice(start, start + TILE)
        keys = head.keys[tile]
        y = torch.bmm(basis.key_map.expand(len(keys), -1, -1), keys.mT)
        add_moments(sums[tile], keys, y, head.values[tile] * weights[tile, :, None], fresh=True)
