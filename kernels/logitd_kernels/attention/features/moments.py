"""Moments of queries and keys, from which maps take their parameters: O(L·d²), no query meets a key."""

from dataclasses import dataclass
from typing import Self

import torch


@dataclass(frozen=True)
class Moments:
    """First and second moments of q' and k' of H heads, each over vectors of its own number.

    float32, so that a state that is exported with them continues on the same bits.

    Attributes:
        q_mean, k_mean: [H, d].
        q_second, k_second: [H, d, d], E q'q'ᵀ and E k'k'ᵀ.
    """

    q_mean: torch.Tensor
    k_mean: torch.Tensor
    q_second: torch.Tensor
    k_second: torch.Tensor

    @classmethod
    def of(cls, q: torch.Tensor, k: torch.Tensor) -> Self:
        """Measure q' [H, Lq, d] and k' [H, Lk, d]; zeros where there is nothing to measure."""
        means = [x.sum(1).div(max(x.shape[1], 1)).float() for x in (q, k)]
        seconds = [(x.mT @ x).div(max(x.shape[1], 1)).float() for x in (q, k)]
        return cls(*means, *seconds)

    def squares(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return E q'_l² and E k'_l² of every dimension l: [H, d] float64 each."""
        return self.q_second.double().diagonal(dim1=-2, dim2=-1), self.k_second.double().diagonal(dim1=-2, dim2=-1)

    def of_sum(self) -> torch.Tensor:
        """Return E (q' + k')(q' + k')ᵀ for a query and a key drawn independently: [H, d, d] float64."""
        cross = self.q_mean.double()[:, :, None] * self.k_mean.double()[:, None, :]
        return self.q_second.double() + self.k_second.double() + cross + cross.mT
