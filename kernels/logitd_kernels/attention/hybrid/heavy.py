"""Which keys every query sees exactly, and which queries are answered exactly.

A needle, one key that one query looks for, is seldom seen by audited rows. To outweigh n keys its score must exceed
log n by far, and a score is at most ‖q‖ ‖k‖. With norms like everybody's that takes logits so spread out,
s ≈ log n / √d, that second order fails on the whole head, and the audit tells. In heads where second order serves, a
needle stands out by its own norm or by its query's: so keys and queries that stand out are exact.
"""

import torch

from logitd_kernels.attention.moment.calibrate import Basis

OUTLYING_KEYS, OUTLYING_QUERIES = 8, 16
_SHARE = 64  # outliers are at most one in so many


def heavy_keys(weights: torch.Tensor, reach: torch.Tensor, count: int, sinks: int) -> torch.Tensor:
    """Choose keys: the first, those of the largest mass, and those that could have the largest score with some query.

    The last are there for a key that a single query looks for: audited rows seldom tell of it, its norm does.

    Args:
        weights: [R, n], of audited rows.
        reach: [n], a bound on the score of each key with any query.
        count: how many by mass.
        sinks: how many of the first.
    Returns:
        [S] int64, ascending; at least one if there are keys.
    """
    keys = weights.shape[1]
    mass = weights.sum(0).topk(min(count, keys)).indices
    outlying = reach.topk(min(OUTLYING_KEYS, keys // _SHARE)).indices
    chosen = torch.zeros(keys, dtype=torch.bool)
    chosen[: max(sinks, 1)] = True
    chosen[mass] = chosen[outlying] = True
    return chosen.nonzero()[:, 0]


def outlying_queries(norms: torch.Tensor) -> torch.Tensor:
    """Choose the queries farthest from their centre: [R] -> ascending indices. Their logits are the most spread out."""
    return norms.topk(min(OUTLYING_QUERIES, len(norms) // _SHARE)).indices.sort().values


def key_reach(k: torch.Tensor, basis: Basis, norm: torch.Tensor) -> torch.Tensor:
    """Return ω_j + ‖k_j − k̄‖ · norm, by Cauchy and Schwarz no less than a score with a query so far from the centre.

    Args:
        k: [n, d].
        basis: without leading dims.
        norm: the largest ‖q − c‖.
    """
    weights = k @ basis.query_centre - basis.key_centre @ basis.query_centre
    return weights + distances(k, basis.key_centre) * norm


def distances(x: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """Return ‖x − centre‖ of every row, [R], without a copy of x; good enough to tell which are far."""
    norms: torch.Tensor = torch.linalg.vector_norm(x, dim=1)
    return (norms**2 - 2 * (x @ centre) + centre @ centre).clamp_(min=0).sqrt_()
