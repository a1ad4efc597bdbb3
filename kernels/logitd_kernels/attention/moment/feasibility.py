"""Whether second order can do, from moments of queries and keys alone: O(L d²), no scores."""

from dataclasses import dataclass

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.moment.calibrate import Basis, basis_of
from logitd_kernels.attention.moment.state import log_weights
from logitd_kernels.attention.sequences import sequences


@dataclass(frozen=True)
class Feasibility:
    """What to expect of each head, [B, Hq], before anything is computed; the causal mask is not looked at.

    Attributes:
        variance: mean over queries of s², the variance of a query's logits under the weights e^ω.
        norm: E‖q' + k'‖², whose exponential is the relative variance of a positive random feature; these beat the mean
            of V only below 2.
        error: the relative error of a second-order state on normal logits of these variances. A prefilter: on real
            heads the error is 0.4 to 1.7 times this.
    """

    variance: torch.Tensor
    norm: torch.Tensor
    error: torch.Tensor


def weight_error(variance: torch.Tensor, order: int = 2) -> torch.Tensor:
    """Return ε_n(s) = √(1 − e^(−s²) Σ_(k ≤ n) s^2k / k!): what degree n misses, at best, of normal logits."""
    return torch.sqrt(torch.special.gammainc(torch.full_like(variance, order + 1), variance))


@torch.no_grad()
def feasibility(call: Call, basis: Basis | None = None) -> Feasibility:
    """Predict the error of a moment state on a call.

    Args:
        call: queries, keys, scale and lengths are read.
        basis: coordinates to use; None calibrates on the call.
    Returns:
        Zeros where a sequence has no queries or keys.
    Raises:
        ParameterError: `scale`, where q, k and the scale are too large for second order.
    """
    bases = basis_of(call, 1, basis)
    found = torch.zeros(3, call.batch, call.heads)
    for row, sequence in enumerate(sequences(call)):
        if not sequence.q.shape[1] or not sequence.k.shape[1]:
            continue
        q, k = sequence.q * call.scaling, sequence.k - bases[row].key_centre[:, None]
        x = q - bases[row].query_centre[:, None]
        variance = torch.linalg.vecdot(x @ _covariance(bases[row], k), x).clamp(min=0)  # s² of each query
        found[0, row] = variance.mean(1)
        found[1, row] = _norm(sequence.q, sequence.k, call.scaling)
        found[2, row] = weight_error(variance).square().mean(1).sqrt()
    return Feasibility(*found)


def _covariance(basis: Basis, k: torch.Tensor) -> torch.Tensor:
    """Return the covariance of centred keys under the weights e^ω: [H, d, d]."""
    weights = torch.softmax(log_weights(basis, k), 1)
    k = k - (weights[:, None] @ k)
    return k.mT @ (k * weights[..., None])


def _norm(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    """Return E‖q' + k'‖² with q' = q·√|scale|, k' = ±k·√|scale|: [H]."""
    squares = q.square().sum(2).mean(1) + k.square().sum(2).mean(1)
    return abs(scale) * squares + 2 * scale * (q.mean(1) * k.mean(1)).sum(1)
