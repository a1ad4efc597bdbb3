"""Positive random features of one Gaussian projection each: what FAVOR+, FAVOR++, FAVOR# and DERF have in common."""

import math
from dataclasses import dataclass

import torch

from logitd_kernels.attention.features.feature import Features, Setting
from logitd_kernels.attention.features.projection import projection


def half_square(x: torch.Tensor) -> torch.Tensor:
    """Return ‖x‖²/2 of [H, T, d]: [H, T, 1]."""
    return x.square().sum(-1, keepdim=True).div_(2)


def gaussian(setting: Setting, each: int = 1) -> torch.Tensor:
    """Return the Gaussian rows W of a setting whose projections give `each` features: [M, d]."""
    options = setting.options
    rows = projection(setting.projections(each), setting.dim, options.seed, options.orthogonal)
    return rows.to(setting.dtype)


@dataclass(frozen=True)
class Positive:
    """φ_i(x) = e^(rows_i·x + bias_i − ‖x‖²/2) of a balanced x.

    Attributes:
        rows: [M, d], or [H, M, d] where heads differ.
        bias: a number, or [H, 1, M] as `rows` are.
        balance: [H, 1, d], queries are multiplied and keys divided by it before all else; None is 1.
    """

    rows: torch.Tensor
    bias: torch.Tensor | float
    balance: torch.Tensor | None = None

    @property
    def size(self) -> int:
        """M."""
        return self.rows.shape[-2]

    @property
    def width(self) -> int:
        """Every feature has an exponent of its own."""
        return self.size

    @property
    def work(self) -> int:
        """One product with the rows."""
        return self.rows.shape[-2] * self.rows.shape[-1]

    def queries(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift q'."""
        return self._lift(x if self.balance is None else x * self.balance)

    def keys(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift k'."""
        return self._lift(x if self.balance is None else x / self.balance)

    def _lift(self, x: torch.Tensor) -> Features:
        if isinstance(self.bias, float):
            return Features((x @ self.rows.mT).sub_(half_square(x).sub_(self.bias)))
        return Features(torch.baddbmm(self.bias, x, self.rows.mT).sub_(half_square(x)))


def damped(
    setting: Setting,
    spread: torch.Tensor,
    turn: torch.Tensor | None = None,
    balance: torch.Tensor | None = None,
) -> Positive:
    """Build D·e^(wᵀAw + wᵀB·Uᵀx − ‖x‖²/2) with the A of least variance: a_l < 0 bounds the features.

        a = (1 − 2Λ − √((1 + 2Λ)² + 8Λ)) / 16,  B = √(1 − 4a),  D = Π (1 − 4a_l)^¼

    Args:
        setting: what gives W, [M, d].
        spread: Λ, [H, d] float64, E ((q' + k')·u_l)² along each direction u_l.
        turn: U, [H, d, d] float64, the directions as columns; None is the identity.
        balance: as in `Positive`.
    Source: Likhosherstov et al. 2022, "Chefs' Random Tables" (one A for all directions), arXiv:2205.15317, and 2023,
        "FAVOR#" (one a direction), arXiv:2302.00787.
    """
    w = gaussian(setting).double()
    a = (1 - 2 * spread - torch.sqrt((1 + 2 * spread).square() + 8 * spread)) / 16
    log_d = torch.log(1 - 4 * a).sum(-1) / 4
    rows = w * torch.sqrt(1 - 4 * a)[:, None]
    if turn is not None:
        rows = rows @ turn.mT
    bias = a @ w.square().T + log_d[:, None] - math.log(len(w)) / 2
    dtype = setting.dtype
    return Positive(rows.to(dtype), bias[:, None].to(dtype), None if balance is None else balance.to(dtype)[:, None])
