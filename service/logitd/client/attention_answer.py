"""What the clients receive for attention: answers into results, without any I/O."""

import json
import math
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from logitd.client.arrays import own_array
from logitd.client.attention_results import (
    AttentionResult,
    Comparison,
    HeadAdvice,
    HeadReport,
    Recommendation,
    Trial,
    TrialHead,
)
from logitd.client.reading import Json, decode, reading
from logitd.wire.tensor import Tensor

Record = TypeVar("Record", HeadReport, Trial, TrialHead, HeadAdvice, Recommendation)

# Numbers that may have no bound, which JSON cannot say: the service sends null.
_UNBOUNDED = frozenset(
    {
        "relative_error",
        "error_low",
        "error_high",
        "mean_v_error",
        "max_row_error",
        "expected_error",
        "predicted_error",
        "logit_variance",
        "norm",
    }
)


def read_attention(body: bytes, *, batched: bool = True) -> AttentionResult:
    """Read the safetensors answer of /v1/attention; what was sent without a batch is answered without one.

    Raises:
        UnexpectedAnswer.
    """
    with reading("attention"):
        tensors, response = decode(body)
        heads = [[_report(head) for head in row] for row in response["heads"]]
        output = _output(tensors["output"], len(heads))
        return AttentionResult(
            output=output if batched else output[0],
            heads=heads,
            cost=response["cost"],
            threshold=response["threshold"],
            attention_seconds=response["attention_seconds"],
            seconds=response["seconds"],
            effective=response["effective"],
        )


def read_comparison(body: bytes) -> Comparison:
    """Read the JSON answer of /v1/attention/compare.

    Raises:
        UnexpectedAnswer.
    """
    with reading("comparison"):
        response = json.loads(body)
        return Comparison(
            trials=[_trial(trial) for trial in response["trials"]],
            heads=[[_advice(head) for head in row] for row in response["heads"]],
            kv_bytes=response["kv_bytes"],
            tolerance=response["tolerance"],
            seconds=response["seconds"],
        )


def read_plan(body: bytes) -> Json:
    """Read the JSON answer of /v1/attention/plan, and leave it as it is: it goes back as the field `plan`.

    Raises:
        UnexpectedAnswer.
    """
    with reading("plan"):
        return dict(json.loads(body))


def _output(tensor: Tensor, rows: int) -> NDArray[np.floating[Any]]:
    if len(tensor.shape) != 4 or tensor.shape[0] != rows:
        raise ValueError(f"output has shape {list(tensor.shape)} for {rows} batch rows")
    return own_array(tensor)


def _report(head: Json) -> HeadReport:
    report = _record(HeadReport, head)
    if report.why == "given_up" and report.approximate_error is None:
        return replace(report, approximate_error=math.inf)
    return report


def _trial(trial: Json) -> Trial:
    return _record(Trial, {**trial, "heads": [[_record(TrialHead, head) for head in row] for row in trial["heads"]]})


def _advice(head: Json) -> HeadAdvice:
    return _record(HeadAdvice, {**head, "recommendation": _record(Recommendation, head["recommendation"])})


def _record(kind: type[Record], found: Json) -> Record:
    """Return what an answer says as a record; what a newer service says beside it is left out."""
    values = {field.name: found[field.name] for field in fields(kind)}
    return kind(**{name: _bounded(name, value) for name, value in values.items()})


def _bounded(name: str, value: Any) -> Any:  # noqa: ANN401
    return math.inf if value is None and name in _UNBOUNDED else value
