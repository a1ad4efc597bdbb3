"""Sparse maps onto the simplex, exactly: the support by a sort, the threshold in closed form.

Both take d = (x − M)/T [V] ≤ 0, M the largest logit, which has at most probability 1: a token that is 1 below it (of
d/2 in 1.5-entmax) is outside, and only those above are sorted. Sums run over gaps between neighbours in the order, all
of one sign: nothing cancels, and tokens that tie are in the support together or not at all.
"""

from collections.abc import Callable

import numpy as np

from logitd_kernels.head import Floats


def sparsemax(deltas: Floats) -> Floats:
    """Return the point of the simplex nearest to x/T.

        p = max(d − τ, 0),  τ such that Σ p = 1

    The support is the k largest, k the last with Σ_{j≤k} (d_j − d_k) < 1; its smallest has the k-th part of what is
    missing from 1. Where that is 0 the token is outside.

    Args:
        deltas: [V] float64, (x − M)/T; −inf has probability 0.
    Returns:
        [V] float64.
    Source: Martins and Astudillo 2016, arXiv:1602.02068, algorithm 1.
    """
    ordered = _nearer_than(1.0, deltas)
    places, gaps = np.arange(1, len(ordered)), ordered[:-1] - ordered[1:]
    above = _running(places * gaps)  # Σ_{j≤k} (d_j − d_k)
    size = int(np.searchsorted(above, 1.0))
    least = (1.0 - above[size - 1]) / size
    return _on_support(deltas, ordered[size - 1], lambda kept: kept + least)


def entmax15(deltas: Floats) -> Floats:
    """Return the 1.5-entmax of x/T, between softmax and sparsemax.

        p = max(d/2 − τ, 0)²,  τ such that Σ p = 1

    With e_j = (d_j − d_k)/2 the support is the k largest, k the last with Σ_{j≤k} e_j² < 1; its smallest has
    probability u², u the positive root of k·u² + 2u Σe + Σe² = 1.

    Args:
        deltas: [V] float64, (x − M)/T; −inf has probability 0.
    Returns:
        [V] float64.
    Source: Peters, Niculae and Martins 2019, arXiv:1905.05702, algorithm 2.
    """
    halves = deltas / 2
    ordered = _nearer_than(1.0, halves)
    places, gaps = np.arange(1, len(ordered)), ordered[:-1] - ordered[1:]
    above = _running(places * gaps)  # Σ e
    squares = _running(gaps * (2 * above[:-1] + places * gaps))  # Σ e²
    size = int(np.searchsorted(squares, 1.0))
    linear, missing = above[size - 1], 1.0 - squares[size - 1]
    root = missing / (linear + np.sqrt(linear**2 + size * missing))
    return _on_support(halves, ordered[size - 1], lambda kept: (kept + root) ** 2)


def entropy_of(masses: Floats) -> float:
    """Return −Σ p ln p in nats of probabilities [V], 0 where p is 0."""
    kept = masses[masses > 0]
    return max(0.0, float(-np.sum(kept * np.log(kept))))  # np.sum adds pairwise, in one thread


def _nearer_than(distance: float, deltas: Floats) -> Floats:
    """Return what lies above −distance, in descending order; the largest, 0, always does."""
    return -np.sort(-deltas[deltas > -distance])


def _running(terms: Floats) -> Floats:
    """Return the sums of the first 0, 1, … terms."""
    return np.concatenate([[0.0], np.cumsum(terms)])


def _on_support(deltas: Floats, floor: float, probability: Callable[[Floats], Floats]) -> Floats:
    """Return probabilities [V], those of tokens at `floor` and above by their distance from it."""
    masses = np.zeros_like(deltas)
    kept = deltas >= floor
    masses[kept] = probability(deltas[kept] - floor)
    return masses
