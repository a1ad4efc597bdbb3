"""The Taylor polynomial of second degree: φ(q')·φ(k') = 1 + s + s²/2 of centred queries and keys."""

from dataclasses import dataclass, field

import torch

from logitd_kernels.attention.features.feature import Features, Method, Setting


@dataclass(frozen=True)
class Taylor2:
    """φ(x) = [1, x, x_i·x_j (i < j), x_i²/√2] of x less its side's mean, each key weighed by e^(q̄·(k' − k̄)).

    q'·(k' − k̄) = (q' − q̄)·(k' − k̄) + q̄·(k' − k̄): centring moves all logits of a query alike, and is exact.

    Attributes:
        dim: d.
        q_mean, k_mean: [H, 1, d], or None for none.
    """

    dim: int
    q_mean: torch.Tensor | None
    k_mean: torch.Tensor | None
    pairs: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", torch.triu_indices(self.dim, self.dim))

    @property
    def size(self) -> int:
        """1 + d + d(d + 1)/2."""
        return 1 + self.dim + self.pairs.shape[1]

    @property
    def width(self) -> int:
        """A key has one log-weight."""
        return 1

    @property
    def work(self) -> int:
        """A product and a weight for each pair."""
        return 2 * self.pairs.shape[1]

    def queries(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift q'."""
        x = x if self.q_mean is None else x - self.q_mean
        return Features(x.new_zeros(*x.shape[:2], 1), self._lift(x))

    def keys(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift k'."""
        x = x if self.k_mean is None else x - self.k_mean
        weight = x.new_zeros(*x.shape[:2], 1) if self.q_mean is None else x @ self.q_mean.mT
        return Features(weight, self._lift(x))

    def _lift(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.pairs
        weights = torch.where(left == right, 0.5, 1.0).sqrt().to(x.dtype)
        return torch.cat([torch.ones_like(x[..., :1]), x, x[..., left] * x[..., right] * weights], -1)


def _fit(setting: Setting) -> Taylor2:
    if setting.moments is None:
        return Taylor2(setting.dim, None, None)
    q_mean, k_mean = (mean[:, None].to(setting.dtype) for mean in (setting.moments.q_mean, setting.moments.k_mean))
    return Taylor2(setting.dim, q_mean, k_mean)


TAYLOR2 = Method(
    name="taylor2",
    formula="[1, x, x_i·x_j (i < j), x_i²/√2], x = q' − q̄ or k' − k̄, keys weighed by e^(q̄·(k' − k̄))",
    features="1 + d + d(d+1)/2",
    approximates=False,
    adapts=True,
    note="No randomness, a fixed error: 1 + s + s²/2 ≥ ½ rises again for s < −1, so queries and keys are centred where "
    "their moments are known, which changes no weight of the softmax.",
    source="Arora et al. 2024, “Simple linear attention language models” (Based), arXiv:2402.18668",
    fit=_fit,
)
