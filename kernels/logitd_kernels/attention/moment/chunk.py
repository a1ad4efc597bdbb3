"""A chunk of a causal pass: queries that see a state and, beside it, keys of their own chunk up to their position."""

import torch

from logitd_kernels.attention.moment.read import Spread, pairs
from logitd_kernels.attention.moment.state import MomentState, log_weights


def attend_chunk(
    state: MomentState, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Read a state and the keys that follow it, as if those were in it.

    The polynomial needs of a key only x_ij and y_ij, so the products of a chunk are never formed. Every query has
    a log-scale of its own: later keys of the chunk, however heavy, do not make its sums underflow.

    Args:
        state: of the keys before the chunk.
        q: [N, n, d], times the scale.
        k: [N, T, d].
        v: [N, T, dv].
        first: which key of the chunk is the last that the first query sees; the next query sees one more.
    Returns:
        Numerators [N, n, dv] and denominators [N, n].
    """
    basis = state.basis
    x, keys = q - basis.query_centre[:, None], k - basis.key_centre[:, None]
    y = basis.query_map @ x.mT  # [N, r, n]
    before, weights = _scaled(state, log_weights(basis, keys), q.shape[1], first)
    inner = x @ keys.mT  # x_ij, [N, n, T]
    low_inner = y.mT @ (basis.key_map @ keys.mT)  # y_ij
    past = Past.of(state, x, y)
    mass = before * past.mass + weights.sum(2)
    mean = (before * past.mean + (weights * inner).sum(2)) / mass
    weighted = weights * low_inner
    low_mean = (before * past.low_mean + weighted.sum(2)) / mass
    variance = (before * past.square + (weighted * low_inner).sum(2)) / mass - low_mean**2
    spread = Spread(mean, low_mean, variance.clamp(min=0))
    weights *= (1 - spread.kappa / 2 - mean)[..., None] + inner + (low_inner - low_mean[..., None]) ** 2 / 2
    numerator = weights @ v + before[..., None] * past.numerator(spread)
    return numerator, mass * (1 + (spread.variance - spread.kappa) / 2)


class Past:
    """The sums of a state along each query, around no mean yet.

    Attributes:
        mass, mean, low_mean, square: Z, x·S1, y·K S1 and y·S2·y, each [N, 1 or n].
    """

    def __init__(self, whole: torch.Tensor, linear: torch.Tensor, low: torch.Tensor, square: torch.Tensor) -> None:
        self._whole, self._linear, self._low, self._square = whole, linear, low, square
        self.mass, self.mean, self.low_mean, self.square = (x[..., -1] for x in (whole, linear, low, square))

    @classmethod
    def of(cls, state: MomentState, x: torch.Tensor, y: torch.Tensor) -> "Past":
        """Take the sums of a state along queries x [N, n, d] with quadratic directions y [N, r, n]."""
        linear, square = state.sums[:, 1 : 1 + state.basis.dim], state.sums[:, 1 + state.basis.dim :]
        low = y.mT @ (state.basis.key_map @ linear)
        return cls(state.sums[:, :1], x @ linear, low, pairs(y).mT @ square)

    def numerator(self, spread: Spread) -> torch.Tensor:
        """Return the state's part of the numerator around the queries' means: [N, n, dv]."""
        constant = 1 - spread.kappa / 2 - spread.mean + spread.low_mean**2 / 2
        found = self._linear + self._square / 2 - spread.low_mean[..., None] * self._low
        return (found + constant[..., None] * self._whole)[..., :-1]


def _scaled(
    state: MomentState, log_weight: torch.Tensor, queries: int, first: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what scales the state's sums for each query, [N, n], and e^ω of the keys it sees, [N, n, T], else 0."""
    keys = log_weight.shape[1]
    unseen = torch.arange(keys)[None, :] > torch.arange(first, first + queries)[:, None]
    exponents = log_weight[:, None].expand(-1, queries, -1).masked_fill(unseen, -torch.inf)
    scale = torch.maximum(exponents.amax(2), state.log_scale[:, None])
    return torch.exp(state.log_scale[:, None] - scale), torch.exp(exponents - scale[..., None])
