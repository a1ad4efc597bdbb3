"""What the client returns for attention: outputs with a report on every head, and comparisons of methods.

Errors are relative, ‖answer − exact‖ / ‖exact‖ over audited queries, and `math.inf` where they have no bound. Lists of
lists are [batch][query head].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HeadReport:
    """What became of one head of one batch row.

    Attributes:
        mode: how it was computed.
        why: requested, short, long, unrepresentable, few_queries, infeasible or given_up.
        reason: the same in words.
        relative_error: of the answer.
        error_low, error_high: its interval.
        approximate_error: of the approximation that was given up for `exact`; None where none was.
        over_tolerance: the answer's error may exceed the tolerance.
        mean_v_error: the error of answering with the mean of the values instead.
        max_row_error: the largest error of one query.
        entropy: mean entropy of the exact weights, nats.
        normalised_entropy: the same over the log of how many keys are seen.
        max_prob: mean of the largest exact weight.
        saturated: attention is a lookup: nearly all weight on one key.
        nonpositive_rows: queries whose normaliser failed.
        state_bytes: what the head would keep in place of its keys and values; None for exact.
        kv_bytes: keys and values in the dtype that was sent.
    """

    mode: str
    why: str
    reason: str
    relative_error: float
    error_low: float
    error_high: float
    approximate_error: float | None
    over_tolerance: bool
    mean_v_error: float
    max_row_error: float
    entropy: float
    normalised_entropy: float
    max_prob: float
    saturated: bool
    nonpositive_rows: int
    state_bytes: int | None
    kv_bytes: int


@dataclass(frozen=True, eq=False)
class AttentionResult:
    """The answer to one attention request.

    Attributes:
        output: in the layout and dtype of q, bfloat16 widened to float32; without the batch where q had none.
        heads: [B][Hq] what became of each head.
        cost: multiply-adds over those of exact attention.
        threshold: up to how many keys `auto` was exact.
        attention_seconds: where attention spent its time: check, choose, attend, audit, recompute.
        seconds: where the service spent its time, by stage.
        effective: the fields as the service understood them.
    """

    output: NDArray[np.floating[Any]]
    heads: list[list[HeadReport]]
    cost: float
    threshold: int
    attention_seconds: dict[str, float]
    seconds: dict[str, float]
    effective: dict[str, Any]

    @property
    def relative_error(self) -> NDArray[np.float64]:
        """Of each head, [B, Hq] float64."""
        return _errors(self.heads)

    @property
    def modes(self) -> list[list[str]]:
        """How each head was computed, [B][Hq]."""
        return [[head.mode for head in row] for row in self.heads]


@dataclass(frozen=True, slots=True)
class TrialHead:
    """How one method did on one head.

    Attributes:
        relative_error to max_row_error, nonpositive_rows: as in `HeadReport`.
        rank_correlation: Spearman's ρ between the method's weights and the exact ones; None where it has none.
    """

    relative_error: float
    error_low: float
    error_high: float
    mean_v_error: float
    max_row_error: float
    rank_correlation: float | None
    nonpositive_rows: int


@dataclass(frozen=True)
class Trial:
    """One method on the caller's tensors.

    Attributes:
        method: its name; `exact` is always there.
        feature_dim: features a head; None where the method has none to choose.
        seconds: it took.
        cost: multiply-adds over those of exact attention.
        state_bytes: what a head keeps in place of its keys and values; None for exact.
        heads: [B][Hq] how wrong it is.
    """

    method: str
    feature_dim: int | None
    seconds: float
    cost: float
    state_bytes: int | None
    heads: list[list[TrialHead]]

    @property
    def relative_error(self) -> NDArray[np.float64]:
        """Of each head, [B, Hq] float64."""
        return _errors(self.heads)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to use for one head: the cheapest method within the tolerance, and why in words."""

    mode: str
    feature_dim: int | None
    expected_error: float
    cost: float
    reason: str


@dataclass(frozen=True, slots=True)
class HeadAdvice:
    """What to expect of one head, and what to use.

    Attributes:
        predicted_error: of a second-order state, from moments of q and k alone; a head errs by 0.4 to 1.7 times this.
        logit_variance: mean variance of a query's logits; what that prediction is made of.
        norm: E‖q' + k'‖²; positive random features beat the mean of the values only below 2.
        recommendation: what to use.
    """

    predicted_error: float
    logit_variance: float
    norm: float
    recommendation: Recommendation


@dataclass(frozen=True)
class Comparison:
    """Methods beside each other.

    Attributes:
        trials: one for each method and number of features, `exact` first.
        heads: [B][Hq] what to use.
        kv_bytes: keys and values of a head.
        tolerance: what recommendations keep within.
        seconds: where the service spent its time, by stage.
    """

    trials: list[Trial]
    heads: list[list[HeadAdvice]]
    kv_bytes: int
    tolerance: float
    seconds: dict[str, float]


class _Judged(Protocol):
    @property
    def relative_error(self) -> float: ...


def _errors(heads: Sequence[Sequence[_Judged]]) -> NDArray[np.float64]:
    shape = (len(heads), len(heads[0]) if heads else 0)
    return np.array([[head.relative_error for head in row] for row in heads], np.float64).reshape(shape)
