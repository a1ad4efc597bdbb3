"""What the clients receive: answers and problem documents into results and typed errors, without any I/O."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import responses
from typing import Any

from numpy.typing import NDArray

from logitd.client.results import Row, RowError, SampleResult, SoftmaxResult, TopLogprob, TraceStep
from logitd.errors import (
    ApiError,
    ClientError,
    FieldError,
    InvalidRequest,
    Malformed,
    Overloaded,
    ServerFault,
    UnexpectedAnswer,
)
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

Json = dict[str, Any]
_SHOWN_CHARACTERS = 200


def read_sample(body: bytes) -> SampleResult:
    """Read the safetensors answer of /v1/sample.

    Raises:
        UnexpectedAnswer.
    """
    with _reading("sample"):
        tensors, response = _decode(body)
        columns = _Columns(tensors, len(response["rows"]))
        rows = [_row(columns, index, rest) for index, rest in enumerate(response["rows"])]
        return SampleResult(rows, response["backend"], response["effective"], response["seconds"])


def read_softmax(body: bytes) -> SoftmaxResult:
    """Read the safetensors answer of /v1/softmax.

    Raises:
        UnexpectedAnswer.
    """
    with _reading("softmax"):
        tensors, response = _decode(body)
        columns = _Columns(tensors, len(response["rows"]))
        errors = [_row_error(rest) for rest in response["rows"]]
        log_z, entropy = columns["log_z"], columns["entropy"]
        if log_z is None or entropy is None:
            raise ValueError("log_z or entropy is missing")
        return SoftmaxResult(columns["values"], log_z, entropy, errors, response["seconds"])


def read_info(body: bytes) -> Json:
    """Read the JSON answer of /v1/info.

    Raises:
        UnexpectedAnswer.
    """
    with _reading("info"):
        return dict(json.loads(body))


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """Return the typed error of an answer outside 2xx, whoever wrote it: the service or something in front of it."""
    if status < 400:
        return UnexpectedAnswer(f"{status} {headers.get('location', '')}".strip())
    detail, fields = _problem(status, body)
    kind: type[ApiError] = ServerFault if status >= 500 else InvalidRequest
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        kind = Overloaded
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


class _Columns:
    """The tensors of an answer of B rows by name, each checked to have B rows; None when it is not there."""

    def __init__(self, tensors: Mapping[str, Tensor], rows: int) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, tensor in tensors.items():
            if tensor.shape[:1] != (rows,):
                raise ValueError(f"{name} has shape {list(tensor.shape)} for {rows} rows")
            self._arrays[name] = tensor.numpy()

    def __getitem__(self, name: str) -> NDArray[Any] | None:
        return self._arrays.get(name)

    def number(self, name: str, index: int) -> Any:  # noqa: ANN401
        """Return a row's number, None where −1 or NaN stands for none."""
        return _known(self._arrays[name][index].item())

    def numbers(self, name: str, index: int) -> list[Any] | None:
        """Return a row's numbers, None for each that stands for none, and for a tensor that is not there."""
        return [_known(item) for item in self._arrays[name][index].tolist()] if name in self._arrays else None


def _row(columns: _Columns, index: int, rest: Json) -> Row:
    error = _row_error(rest)
    token = columns.number("token", index)
    tokens = columns.numbers("tokens", index) or [token]
    return Row(
        token=token,
        tokens=tuple(drawn for drawn in tokens if drawn is not None) or None,
        logprob=columns.number("logprob", index),
        entropy=columns.number("entropy", index),
        entropy_kept=columns.number("entropy_kept", index),
        kept=columns.number("kept", index),
        kept_mass=columns.number("kept_mass", index),
        seed=None if error else columns.number("seed", index),
        stream=rest.get("stream"),
        step=rest.get("step"),
        exact=None if error else rest.get("exact"),
        error=error,
        logprob_raw=None if columns["logprob_raw"] is None else columns.number("logprob_raw", index),
        tokens_logprob=_tokens_logprob(columns, index, tokens),
        top=None if error else _top(columns, index),
        trace=_trace(rest.get("trace")),
    )


def _row_error(rest: Json) -> RowError | None:
    error = rest["error"]
    return None if error is None else RowError(error["code"], error["row"], error["detail"])


def _tokens_logprob(columns: _Columns, index: int, tokens: list[Any]) -> tuple[float | None, ...] | None:
    logprobs = columns.numbers("tokens_logprob", index)
    if logprobs is None:
        return None
    return tuple(logprob for token, logprob in zip(tokens, logprobs, strict=True) if token is not None) or None


def _top(columns: _Columns, index: int) -> tuple[TopLogprob, ...] | None:
    tokens, logprobs = columns.numbers("top_tokens", index), columns.numbers("top_logprobs", index)
    if tokens is None or logprobs is None:
        return None
    pairs = zip(tokens, logprobs, strict=True)
    return tuple(TopLogprob(token, logprob) for token, logprob in pairs if token is not None)


def _trace(steps: list[Json] | None) -> tuple[TraceStep, ...] | None:
    if steps is None:
        return None
    return tuple(TraceStep(s["transform"], s["entropy"], s["kept"], s["kept_mass"]) for s in steps)


def _known(value: Any) -> Any:  # noqa: ANN401
    absent = value == -1 if isinstance(value, int) else math.isnan(value)
    return None if absent else value


def _decode(body: bytes) -> tuple[dict[str, Tensor], Json]:
    tensors, metadata = safetensors.decode(body)
    return tensors, dict(json.loads(metadata["response"]))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (Malformed, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UnexpectedAnswer(f"the {what} answer cannot be read: {reason}") from error


def _problem(status: int, body: bytes) -> tuple[str, list[FieldError]]:
    """Return detail and field errors of a problem document, or what any other body says."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return _foreign(status, body.decode("utf-8", "replace")), []
    stated = next((document[key] for key in ("detail", "title", "error") if document.get(key)), None)
    errors = document.get("errors")
    fields = [
        FieldError(str(entry.get("path", "")), str(entry.get("message", "")))
        for entry in (errors if isinstance(errors, list) else [])
        if isinstance(entry, dict)
    ]
    return stated if isinstance(stated, str) else _foreign(status, json.dumps(document)), fields


def _foreign(status: int, text: str) -> str:
    """Return the reason phrase and the start of a body that is no problem document."""
    reason = responses.get(status, "unknown status")
    start = " ".join(text[:_SHOWN_CHARACTERS].split())
    return f"{reason}: {start}" if start else reason
