"""Coefficients of the far keys' polynomial, fitted so that audited rows come out as exactly as they can."""

from dataclasses import dataclass

import torch

from logitd_kernels.attention.exact_rows import HeadRows
from logitd_kernels.attention.hybrid.far import Far
from logitd_kernels.attention.hybrid.head import BLOCK, Head
from logitd_kernels.attention.hybrid.tile import expansion
from logitd_kernels.attention.moment.read import PLAIN, Coefficients

RIDGE = 0.1  # of the mean squared response: what holds coefficients to 1 that the rows say little about


@dataclass(frozen=True)
class Orders:
    """What audited rows are made of.

    Attributes:
        exact: what the window and the heavy keys add to numerator and normaliser, [R, dv + 1].
        far: what order 0, 1 and 2 of the far keys' polynomial add to them, [3, R, dv + 1].
        wanted: exact attention's answer, [R, dv].
    """

    exact: torch.Tensor
    far: torch.Tensor
    wanted: torch.Tensor

    @classmethod
    def of(cls, head: Head, far: Far, queries: torch.Tensor, rows: HeadRows) -> "Orders":
        """Take some queries of a head apart: [R] int64, and what exact attention makes of them.

        Their exact weights are at hand, and the scale is that on which these add up to 1.
        """
        blocks = (queries + head.offset) // BLOCK - head.first
        q = head.q[queries]
        total = rows.total[:, 0] - q @ head.basis.key_centre  # of centred keys
        if far.compiled:
            return cls(*far.compiled.orders(q, blocks, total), rows.output)
        exact = rows.weights.masked_fill(_far(head, queries), 0) @ head.by_key(head.values)
        expanded = expansion(head, q[:, None], far.of(blocks))
        scale = torch.exp(expanded.log_mass[:, 0] - total)[:, None]
        return cls(exact, scale * expanded.orders()[:, :, 0], rows.output)

    def split(self, count: int) -> "tuple[Orders, Orders]":
        """Return the first so many rows, and the rest."""
        first, rest = slice(count), slice(count, None)
        return (
            Orders(self.exact[first], self.far[:, first], self.wanted[first]),
            Orders(self.exact[rest], self.far[:, rest], self.wanted[rest]),
        )

    def errors(self, choices: list[Coefficients]) -> list[float]:
        """Return ‖answer − wanted‖ over the rows under each choice of coefficients."""
        sums = self.exact + torch.tensordot(torch.tensor(choices, dtype=self.far.dtype), self.far, 1)
        wrong = sums[..., :-1] / sums[..., -1:] - self.wanted
        return [float(each) for each in wrong.square().sum((1, 2)).sqrt()]


def fitted(rows: Orders) -> Coefficients:
    """Solve for the coefficients a that make Σ ‖N_E − O D_E + Σ a_k (N_k − O D_k)‖² / D² least, held to (1, 1, 1)."""
    sums = torch.cat([rows.exact[None], rows.far])  # [4, R, dv + 1]
    normaliser = sums[..., -1].sum(0)[:, None]
    residual = ((sums[..., :-1] - rows.wanted * sums[..., -1:]) / normaliser).flatten(1).double()
    gram = residual @ residual.T
    ridge = RIDGE * gram.diagonal()[1:].mean() + 1e-30
    held = gram[1:, 1:] + ridge * torch.eye(3, dtype=torch.float64)
    a0, a1, a2 = torch.linalg.solve(held, ridge - gram[1:, 0]).tolist()
    return a0, a1, a2


def coefficients_of(fit: Orders, report: Orders) -> Coefficients:
    """Fit on some rows; keep (1, 1, 1) where the fit makes other rows worse, or a normaliser that may be negative."""
    found = fitted(fit)
    plain, now = report.errors([PLAIN, found])
    # The normaliser is Z (a0 + a2 (s² − κ) / 2), and s² ≥ κ.
    return found if found[0] > 0 and found[2] >= 0 and now <= plain else PLAIN


def _far(head: Head, queries: torch.Tensor) -> torch.Tensor:
    """Return which keys are neither heavy nor in the window of each query: [R, n] bool."""
    block = ((queries + head.offset) // BLOCK)[:, None]
    keys = torch.arange(-(-len(head.k) // BLOCK))
    far = (keys < block - head.window.before) | (keys > block + head.window.after)
    far = far.repeat_interleave(BLOCK, 1)[:, : len(head.k)]
    far[:, head.heavy] = False
    return far
