"""A comparison as text: a line for each trial, and below what to use for each head and why."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from logitd.cli.text import aligned
from logitd.client import Comparison, Trial

_TRIALS = ("method", "features", "median error", "90% below", "rank correlation", "cost", "seconds", "bytes kept")
_HEADS = ("batch", "head", "use", "features", "error", "cost")


def as_tables(comparison: Comparison) -> str:
    """Return both tables, the heads' with the reasons beside it."""
    lines = _trials(comparison)
    heads = [(row, head, advice) for row, own in enumerate(comparison.heads) for head, advice in enumerate(own)]
    cells = []
    for row, head, advice in heads:
        use = advice.recommendation
        features = _number(use.feature_dim)
        cells.append([str(row), str(head), use.mode, features, _number(use.expected_error), _number(use.cost)])
    reasons = ["  why", *(f"  {advice.recommendation.reason}" for _, _, advice in heads)]
    below = [line + reason for line, reason in zip(aligned(_HEADS, cells), reasons, strict=True)]
    return "\n".join([*lines, "", *below])


def quantile(errors: NDArray[np.float64], of: float) -> float | None:
    """Return the least error that a fraction of the heads does not exceed, infinite ones among them; None for none."""
    return float(np.quantile(errors, of, method="inverted_cdf")) if errors.size else None


def _trials(comparison: Comparison) -> Iterator[str]:
    trials = comparison.trials
    lines = aligned(_TRIALS, [_cells(trial, comparison.kv_bytes) for trial in trials])
    yield next(lines)
    for line, trial in zip(lines, trials, strict=True):
        failed = sum(head.nonpositive_rows for row in trial.heads for head in row)
        yield line + (f"  {failed} queries without a normaliser" if failed else "")


def _cells(trial: Trial, kv_bytes: int) -> Sequence[str]:
    correlations = [head.rank_correlation for row in trial.heads for head in row if head.rank_correlation is not None]
    return [
        trial.method,
        _number(trial.feature_dim),
        _number(quantile(trial.relative_error, 0.5)),
        _number(quantile(trial.relative_error, 0.9)),
        _number(float(np.median(correlations)) if correlations else None),
        _number(trial.cost),
        _number(trial.seconds),
        _number(kv_bytes if trial.state_bytes is None else trial.state_bytes),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}"
