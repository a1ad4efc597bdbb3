"""Which tokens a cut may keep or drop: those at the cut itself, by ties, and those within rounding of it.

Each function takes the probabilities [V] float64 before the step (0 for what is dropped), the parameters and a
tolerance, and gives [V] booleans. About all other tokens, implementations of the same rule agree.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Params = Mapping[str, Any]


def logs(p: np.ndarray) -> np.ndarray:
    """Return ln p [V]; −inf for what is dropped."""
    with np.errstate(divide="ignore"):
        return np.log(p)


def entropy(p: np.ndarray) -> float:
    """Return −Σ p ln p in nats."""
    return float(-np.sum(p[p > 0] * np.log(p[p > 0])))


def straddling(key: np.ndarray, weights: np.ndarray, target: float, tolerance: float) -> np.ndarray:
    """Return the tokens among whose equals, from the largest key down, the sum of weights passes the target.

    A token without equals is among them only where the sum before or after it is the target itself.
    """
    ordered = np.argsort(-key, kind="stable")
    falling = -key[ordered]
    sums = np.concatenate([[0.0], np.cumsum(weights[ordered])])
    first = np.searchsorted(falling, -(key + tolerance), side="left")
    end = np.searchsorted(falling, -(key - tolerance), side="right")
    above, through = sums[first] - target, sums[end] - target
    at_target = np.minimum(np.abs(above), np.abs(through)) <= tolerance
    return at_target | (end - first > 1) & (above <= 0) & (through >= 0)


def near(p: np.ndarray, log_floor: float, tolerance: float) -> np.ndarray:
    """Return the tokens whose ln p is at a floor, or the likeliest where none reaches it."""
    return np.abs(logs(p) - min(log_floor, math.log(p.max()))) <= tolerance


def _top_k(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    last = np.sort(p)[::-1][min(params["top_k"], len(p)) - 1]
    return near(p, math.log(last), tolerance) if last else np.zeros(len(p), bool)


def _top_p(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    return straddling(logs(p), p, params["top_p"], tolerance)


def _min_p(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    return near(p, math.log(p.max() * params["min_p"]), tolerance)


def _typical_p(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    surprise = entropy(p)
    distance = np.where(p > 0, np.abs(-logs(p) - surprise), np.inf)
    return straddling(-distance, p, params["typical_p"], tolerance * (1 + surprise))


def _epsilon_cutoff(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    return near(p, math.log(params["epsilon_cutoff"]), tolerance)


def _eta_cutoff(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    epsilon = params["eta_cutoff"]
    return near(p, min(math.log(epsilon), math.log(epsilon) / 2 - entropy(p)), tolerance)


def _top_h(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    energies = np.where(p > 0, -p * logs(np.maximum(p, 1e-300)), 0.0)
    return straddling(logs(p), energies, params["top_h"] * entropy(p), tolerance)


def _top_n_sigma(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    kept = logs(p[p > 0])
    sigma = kept.std() * params["top_n_sigma"]
    slack = tolerance * (1 + sigma * math.sqrt(len(kept)))  # of a float32 sum over all of them
    return near(p, kept.max() - sigma, slack)


def _xtc(p: np.ndarray, params: Params, tolerance: float) -> np.ndarray:
    threshold = params["xtc_threshold"]
    at_threshold = np.abs(logs(p) - math.log(threshold)) <= tolerance
    above = p[p > threshold * (1 + tolerance)]
    last = near(p, math.log(above.min()), tolerance) if len(above) else np.zeros(len(p), bool)
    return at_threshold | last if at_threshold.any() or last.sum() > 1 else at_threshold


UNSURE: Mapping[str, Callable[[np.ndarray, Params, float], np.ndarray]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "typical_p": _typical_p,
    "epsilon_cutoff": _epsilon_cutoff,
    "eta_cutoff": _eta_cutoff,
    "top_h": _top_h,
    "top_n_sigma": _top_n_sigma,
    "xtc": _xtc,
}


def _least(p: np.ndarray, kept: np.ndarray, params: Params, tolerance: float) -> bool:
    return np.count_nonzero(kept) >= min(params["top_k"], np.count_nonzero(p))


def _reaches(p: np.ndarray, kept: np.ndarray, params: Params, tolerance: float) -> bool:
    mass = p[kept].sum()
    return mass >= params["top_p"] - tolerance and mass - p[kept].min() <= params["top_p"] + tolerance


def _reaches_typically(p: np.ndarray, kept: np.ndarray, params: Params, tolerance: float) -> bool:
    distance = np.abs(-logs(p) - entropy(p))
    last = kept & (distance >= distance[kept].max() - tolerance * (1 + entropy(p)))
    mass = p[kept].sum()
    return mass >= params["typical_p"] - tolerance and mass - p[last].sum() <= params["typical_p"] + tolerance


def _within_budget(p: np.ndarray, kept: np.ndarray, params: Params, tolerance: float) -> bool:
    energies, budget = -p * logs(np.maximum(p, 1e-300)), params["top_h"] * entropy(p)
    spent = energies[kept].sum()
    following = np.where(kept, 0.0, p).argmax()
    least = np.count_nonzero(kept) == 1 or spent <= budget + tolerance
    return least and (kept.all() or spent + energies[following] >= budget - tolerance)


def _one_at_the_top(p: np.ndarray, kept: np.ndarray, params: Params, tolerance: float) -> bool:
    def left(threshold: float) -> int:
        return np.count_nonzero(kept & (p >= threshold))

    threshold = params["xtc_threshold"]
    return left(threshold * (1 + tolerance)) <= 1 and (p.max() < threshold or left(threshold * (1 - tolerance)) >= 1)


# Whether the tokens kept, [V] booleans, are such that the rule may keep, ties and rounding aside.
HOLDS: Mapping[str, Callable[[np.ndarray, np.ndarray, Params, float], bool]] = {
    "top_k": _least,
    "top_p": _reaches,
    "typical_p": _reaches_typically,
    "top_h": _within_budget,
    "xtc": _one_at_the_top,
}
