"""What the clients send: each method's arguments as one HTTP request, built without any I/O."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from logitd.client.answer import read_info, read_sample, read_softmax
from logitd.client.arrays import as_rows, rows_of, tensor_of
from logitd.client.compact import Head, compact
from logitd.client.results import SampleResult, SoftmaxResult
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

Parameters = Mapping[str, Any]
Answer = TypeVar("Answer")

_FLAT = 1e100  # at such a temperature any row is uniform
_BINARY = {"content-type": safetensors.MEDIA_TYPE, "accept": safetensors.MEDIA_TYPE}


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request, and how to read its answer's body. `repeatable` calls may run twice and answer the same."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    repeatable: bool
    read: Callable[[bytes], Answer]


def sample_call(
    logits: object,
    *,
    params: Parameters | Sequence[Parameters] | None = None,
    keywords: Parameters = {},  # noqa: B006  (never written to)
    mask: object = None,
    logprobs: int = 0,
    logprobs_mode: str = "raw",
    trace: bool = False,
    strict: bool = False,
    size: int | None = None,
) -> Call[SampleResult]:
    """Build POST /v1/sample; the arguments are those of `Client.sample`, `size` its `compact`.

    Raises:
        TypeError, ValueError: logits, mask or parameters that cannot be sent at all; the service judges the rest.
    """
    merged = _merged(params, keywords)
    fields: dict[str, Any] = {
        "params": merged,
        "logprobs": logprobs,
        "logprobs_mode": logprobs_mode,
        "trace": trace,
        "strict": strict,
    }
    rows = _rows(logits, size, merged)
    if isinstance(rows, Head):
        fields["vocab_size"] = rows.vocab_size
        tensors = _head_tensors(rows)
    else:
        tensors = {"logits": rows}
    if mask is not None:
        tensors["mask"] = as_rows(tensor_of(mask))
    seeded = all(row.get("seed", -1) not in (None, -1) for row in _each(merged))
    return Call("POST", "/v1/sample", _BINARY, _body(tensors, fields), seeded, read_sample)


def softmax_call(logits: object, temperature: float | Sequence[float], kind: str) -> Call[SoftmaxResult]:
    """Build POST /v1/softmax; the arguments are those of `Client.softmax`.

    Raises:
        TypeError, ValueError: logits or a temperature that cannot be sent at all.
    """
    fields = {"temperature": _plain("temperature", temperature), "kind": kind}
    return Call("POST", "/v1/softmax", _BINARY, _body({"logits": rows_of(logits)}, fields), True, read_softmax)


def info_call() -> Call[dict[str, Any]]:
    """Build GET /v1/info."""
    return Call("GET", "/v1/info", {"accept": "application/json"}, b"", True, read_info)


def _body(tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> bytes:
    return b"".join(safetensors.encode(tensors, {"request": json.dumps(_plain("request", fields), allow_nan=False)}))


def _merged(params: Parameters | Sequence[Parameters] | None, keywords: Parameters) -> Any:  # noqa: ANN401
    """Return the parameters in JSON types, one object or one for each row; a row's own win over the keywords."""
    own = {} if params is None else params
    if isinstance(own, Mapping):
        return _plain("params", {**keywords, **own})
    return [_plain(f"params[{index}]", {**keywords, **row}) for index, row in enumerate(own)]


def _each(merged: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    return merged if isinstance(merged, list) else [merged]


def _rows(logits: object, size: int | None, merged: Any) -> Tensor | Head:  # noqa: ANN401
    if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1):
        raise ValueError(f"compact must be at least 1, the number of logits to send of each row, got {size}")
    if isinstance(logits, Head):
        if size is not None:
            raise ValueError("compact selects from whole rows, and a Head is given")
        return logits
    rows = rows_of(logits)
    if size is None or size >= rows.shape[1]:
        return rows
    return compact(rows, int(size), _temperatures(merged))


def _temperatures(merged: Any) -> list[float]:  # noqa: ANN401
    """Return the temperatures that the service will need log Z at; what is none is for the service to refuse."""
    asked = [row.get("temperature") for row in _each(merged)]
    return [float(t) for t in asked if isinstance(t, (int, float)) and not isinstance(t, bool) and 0 < t < _FLAT]


def _head_tensors(head: Head) -> dict[str, Tensor]:
    tensors = {
        "head_ids": tensor_of(head.ids),
        "head_logits": tensor_of(head.logits),
        "log_z": tensor_of(head.log_z),
        "log_z_temperatures": Tensor.of(np.array(head.temperatures, np.float64)),
    }
    if head.finite_count is not None:
        tensors["head_finite_count"] = tensor_of(head.finite_count)
    return tensors


def _plain(path: str, value: Any) -> Any:  # noqa: ANN401
    """Return a value in JSON types; NaN and infinities as strings, which the service names in its own words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(f"{path}.{key}", item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and scalars, torch tensors
        return _plain(path, value.tolist())
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_plain(f"{path}[{index}]", item) for index, item in enumerate(value)]
    raise TypeError(f"{path}: {type(value).__name__} has no form in JSON")
