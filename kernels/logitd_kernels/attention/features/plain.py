"""Maps without exponentials of norms: their log-scale is 0."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from logitd_kernels.attention.features.feature import Features

Lift = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Plain:
    """φ(x) = lift(x, positions): [H, T, d] and [T] int64 to [H, T, m].

    Attributes:
        size: m.
        work: multiply-adds that lifting one vector takes.
        lift: of queries, and of keys.
    """

    size: int
    work: int
    lift: Lift

    @property
    def width(self) -> int:
        """One exponent, 0."""
        return 1

    def queries(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift q'."""
        return Features(x.new_zeros(*x.shape[:2], 1), self.lift(x, positions))

    keys = queries
