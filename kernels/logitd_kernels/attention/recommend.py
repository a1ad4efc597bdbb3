"""From trials to a recommendation for each head."""

from collections.abc import Sequence
from dataclasses import dataclass

from logitd_kernels.attention.compare import Trial
from logitd_kernels.attention.report import largest_error


@dataclass(frozen=True)
class Recommendation:
    """What to use for one head.

    Attributes:
        mode: the cheapest method within the tolerance, `exact` where none is.
        feature_dim: of that method.
        expected_error: measured; 0 for exact.
        cost: multiply-adds over those of exact attention.
        reason: in words.
    """

    mode: str
    feature_dim: int | None
    expected_error: float
    cost: float
    reason: str


def recommend(trials: Sequence[Trial], rows: Sequence[int], head: int, tolerance: float) -> Recommendation:
    """Recommend for one head, what does for all of some batch rows.

    Args:
        trials: of one call; `exact` may be among them.
        rows, head: whose.
        tolerance: relative error that the head may have.
    """
    linear = [trial for trial in trials if trial.method != "exact"]
    good = [trial for trial in linear if _may_err(trial, rows, head) <= tolerance and trial.cost < 1]
    if good:
        best = min(good, key=lambda trial: trial.cost)
        error = float(best.audit.error[list(rows), head].amax()) if rows else 0.0
        reason = f"errs by {error:.3g} at {best.cost:.2g} of the multiply-adds of exact attention"
        return Recommendation(best.method, best.feature_dim, error, best.cost, reason)
    if not linear:
        return Recommendation("exact", None, 0.0, 1.0, "nothing else was tried")
    nearest = min(linear, key=lambda trial: _may_err(trial, rows, head))
    error = _may_err(nearest, rows, head)
    if error <= tolerance:
        return Recommendation(
            "exact", None, 0.0, 1.0, f"{nearest.method} would do but costs {nearest.cost:.2g} of exact"
        )
    reason = f"the best other, {nearest.method}, may err by {error:.3g}, more than {tolerance:g}"
    return Recommendation("exact", None, 0.0, 1.0, reason)


def _may_err(trial: Trial, rows: Sequence[int], head: int) -> float:
    if not rows:
        return 0.0
    if trial.nonpositive_rows[list(rows), head].any():
        return float("inf")
    return float(largest_error(trial.audit)[list(rows), head].amax())
