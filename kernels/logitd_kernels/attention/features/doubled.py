"""Random features of which each Gaussian projection gives two: what `hyperbolic` and `trig` have in common."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Doubled:
    """Holds W, [M, d]; there are 2M features."""

    rows: torch.Tensor

    @property
    def size(self) -> int:
        """2M."""
        return 2 * len(self.rows)

    @property
    def work(self) -> int:
        """One product with the rows."""
        return self.rows.numel()
