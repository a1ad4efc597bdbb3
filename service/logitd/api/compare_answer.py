"""Trials and recommendations as they are sent: by orjson, which writes null for what is not finite."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from logitd_kernels.attention import Call, Feasibility, Trial, recommend

Json = dict[str, Any]


def trial_line(trial: Trial) -> Json:
    """Return a trial without its heads: what a progress bar shows."""
    return {
        "method": trial.method,
        "feature_dim": trial.feature_dim,
        "seconds": trial.seconds,
        "cost": trial.cost,
        "state_bytes": trial.state_bytes,
        "median_error": trial.audit.error.median().item() if trial.audit.error.numel() else None,
    }


def compared(call: Call, trials: Sequence[Trial], predicted: Feasibility, tolerance: float) -> Json:
    """Return the whole answer: the trials, and for each head a prediction and a recommendation."""
    return {
        "trials": [_trial(trial) for trial in trials],
        "heads": [
            [
                {
                    "predicted_error": predicted.error[row, head].item(),
                    "logit_variance": predicted.variance[row, head].item(),
                    "norm": predicted.norm[row, head].item(),
                    "recommendation": asdict(recommend(trials, [row], head, tolerance)),
                }
                for head in range(call.heads)
            ]
            for row in range(call.batch)
        ],
        "kv_bytes": call.keys * (call.k.shape[3] + call.v.shape[3]) * call.k.element_size(),
        "tolerance": tolerance,
    }


def _trial(trial: Trial) -> Json:
    audit = trial.audit
    columns = {
        "relative_error": audit.error,
        "error_low": audit.low,
        "error_high": audit.high,
        "mean_v_error": audit.mean_v_error,
        "max_row_error": audit.max_row_error,
        "rank_correlation": trial.rank_correlation,
        "nonpositive_rows": trial.nonpositive_rows,
    }
    rows, heads = audit.error.shape
    own = [
        [{name: column[row, head].item() for name, column in columns.items()} for head in range(heads)]
        for row in range(rows)
    ]
    return {**trial_line(trial), "heads": own}
