"""Moment states of a head, side by side in memory."""

from dataclasses import dataclass

import torch

from logitd_kernels.attention.hybrid.head import Head
from logitd_kernels.attention.moment.state import size_of


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

    def clear(self) -> None:
        """Make them empty."""
        self.sums.zero_()
        self.log_scale.fill_(-torch.inf)


def merge(one: States, other: States, out: States) -> None:
    """Add states up, pair by pair, each on the larger of two scales. Weights are positive: no sum cancels.

    `out` may be one of them.
    """
    scale = torch.maximum(one.log_scale, other.log_scale)
    base = scale.clamp(min=torch.finfo(scale.dtype).min)
    first, second = torch.exp(one.log_scale - base)[:, None], torch.exp(other.log_scale - base)[:, None]
    torch.addcmul(other.sums * second, one.sums, first, out=out.sums)
    out.log_scale.copy_(scale)
