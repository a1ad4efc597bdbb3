"""What the clients receive: answers and problem documents into results and typed errors, without any I/O."""

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import responses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd.client.reading import Json, decode, reading
from logitd.client.results import Row, RowError, SampleResult, SoftmaxResult, TopLogprob, TraceStep
from logitd.errors import (
    ApiError,
    ClientError,
    FieldError,
    InvalidRequest,
    Overloaded,
    ServerFault,
    SessionGone,
    UnexpectedAnswer,
)
from logitd.wire.tensor import Tensor

Columns = dict[str, NDArray[Any]]
_SHOWN_CHARACTERS = 200

# Of sessions alone. A 404 of a route that is not there has another type.
_GONE = ("urn:logitd:problem:gone", "urn:logitd:problem:not-found")


def read_sample(body: bytes) -> SampleResult:
    """Read the safetensors answer of /v1/sample.

    Raises:
        UnexpectedAnswer.
    """
    with reading("sample"):
        tensors, response = decode(body)
        columns = _columns(tensors, len(response["rows"]))
        rows = [_row(columns, index, rest) for index, rest in enumerate(response["rows"])]
        return SampleResult(rows, response["backend"], response["effective"], response["seconds"])


def read_softmax(body: bytes) -> SoftmaxResult:
    """Read the safetensors answer of /v1/softmax.

    Raises:
        UnexpectedAnswer.
    """
    with reading("softmax"):
        tensors, response = decode(body)
        columns = _columns(tensors, len(response["rows"]))
        errors = [_row_error(rest) for rest in response["rows"]]
        return SoftmaxResult(
            values=columns.get("values"),
            log_z=columns["log_z"],
            entropy=columns["entropy"],
            errors=errors,
            seconds=response["seconds"],
            seed=columns.get("seed"),
        )


def read_info(body: bytes) -> Json:
    """Read the JSON answer of /v1/info.

    Raises:
        UnexpectedAnswer.
    """
    with reading("info"):
        return dict(json.loads(body))


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """Return the typed error of an answer outside 2xx, whoever wrote it: the service or something in front of it."""
    if status < 400:
        return UnexpectedAnswer(f"{status} {headers.get('location', '')}".strip())
    detail, fields, problem_type = _problem(status, body)
    kind: type[ApiError] = ServerFault if status >= 500 else InvalidRequest
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        kind = Overloaded
    elif problem_type in _GONE:
        kind = SessionGone
    return kind(status, detail, fields, retry_after_seconds(headers.get("retry-after")))


def retry_after_seconds(value: str | None) -> float | None:
    """Read a Retry-After header, in seconds or as an HTTP date; None when it is missing or neither."""
    if value is None:
        return None
    try:
        seconds = float(value) if value[:1].isdigit() else parsedate_to_datetime(value).timestamp() - time.time()
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _columns(tensors: Mapping[str, Tensor], rows: int) -> Columns:
    """Return the tensors of an answer as arrays, each checked to have one entry for each row."""
    for name, tensor in tensors.items():
        if tensor.shape[:1] != (rows,):
            raise ValueError(f"{name} has shape {list(tensor.shape)} for {rows} rows")
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _row(columns: Columns, index: int, rest: Json) -> Row:
    error = _row_error(rest)
    drawn = _drawn(columns, index)
    return Row(
        token=_known(columns["token"][index]),
        tokens=tuple(token for token, _ in drawn) or None,
        logprob=_known(columns["logprob"][index]),
        tokens_logprob=tuple(logprob for _, logprob in drawn) or None,
        entropy=_known(columns["entropy"][index]),
        entropy_kept=_known(columns["entropy_kept"][index]),
        kept=_known(columns["kept"][index]),
        kept_mass=_known(columns["kept_mass"][index]),
        seed=None if error else _known(columns["seed"][index]),
        stream=rest.get("stream"),
        step=rest.get("step"),
        exact=rest.get("exact"),
        error=error,
        logprob_raw=_known(columns["logprob_raw"][index]) if "logprob_raw" in columns else None,
        top=None if error or "top_tokens" not in columns else _top(columns, index),
        trace=_trace(rest.get("trace")),
        notes=None if rest.get("notes") is None else tuple(rest["notes"]),
        state=rest.get("state"),
    )


def _drawn(columns: Columns, index: int) -> list[tuple[int, float | None]]:
    """Return each drawn token and its log-probability; nothing where the row failed."""
    if "tokens" in columns:  # n > 1, padded to the largest n of the request
        tokens, logprobs = columns["tokens"][index], columns["tokens_logprob"][index]
    else:
        tokens, logprobs = columns["token"][index : index + 1], columns["logprob"][index : index + 1]
    return _pairs(tokens, logprobs)


def _row_error(rest: Json) -> RowError | None:
    error = rest["error"]
    return None if error is None else RowError(error["code"], error["row"], error["detail"])


def _top(columns: Columns, index: int) -> tuple[TopLogprob, ...]:
    pairs = _pairs(columns["top_tokens"][index], columns["top_logprobs"][index])
    return tuple(TopLogprob(token, logprob) for token, logprob in pairs)


def _pairs(tokens: NDArray[Any], logprobs: NDArray[Any]) -> list[tuple[int, float | None]]:
    """Return tokens beside their log-probabilities, without the padding."""
    pairs = zip(tokens, logprobs, strict=True)
    return [(int(token), _known(logprob)) for token, logprob in pairs if token != -1]


def _trace(steps: list[Json] | None) -> tuple[TraceStep, ...] | None:
    if steps is None:
        return None
    names = [field.name for field in dataclasses.fields(TraceStep)]
    return tuple(TraceStep(**{name: step[name] for name in names}) for step in steps)


def _known(number: np.generic) -> Any:  # noqa: ANN401
    """Return a number of an answer; −1 and NaN stand for none."""
    value = number.item()
    absent = value == -1 if isinstance(value, int) else math.isnan(value)
    return None if absent else value


def _problem(status: int, body: bytes) -> tuple[str, list[FieldError], object]:
    """Return detail, field errors and type of a problem document, or what any other body says."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return _foreign(status, body.decode("utf-8", "replace")), [], None
    stated = next((document[key] for key in ("detail", "title", "error") if document.get(key)), None)
    errors = document.get("errors")
    fields = [
        FieldError(str(entry.get("path", "")), str(entry.get("message", "")))
        for entry in (errors if isinstance(errors, list) else [])
        if isinstance(entry, dict)
    ]
    detail = stated if isinstance(stated, str) else _foreign(status, json.dumps(document))
    return detail, fields, document.get("type")


def _foreign(status: int, text: str) -> str:
    """Return the reason phrase and the start of a body that is no problem document."""
    reason = responses.get(status, "unknown status")
    start = " ".join(text[:_SHOWN_CHARACTERS].split())
    return f"{reason}: {start}" if start else reason
