"""What the clients send for rows of logits: each method's arguments as one HTTP request, built without any I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from logitd.client.answer import read_info, read_sample, read_softmax
from logitd.client.arrays import as_rows, rows_of, tensor_of
from logitd.client.compact import Head, compact
from logitd.client.request import BINARY, Call, Parameters, body_of, plain
from logitd.client.results import SampleResult, SoftmaxResult
from logitd.wire.tensor import Tensor

_FLAT = 1e100  # at such a temperature any row is uniform


@dataclass(frozen=True)
class SampleRequest:
    """A request to sample, before it is bytes.

    Attributes:
        tensors: by their names in the body.
        fields: the rest, in JSON types.
    """

    tensors: Mapping[str, Tensor]
    fields: Mapping[str, Any]

    @property
    def params(self) -> list[dict[str, Any]] | dict[str, Any]:
        """The parameters, one object or one for each row."""
        params: list[dict[str, Any]] | dict[str, Any] = self.fields["params"]
        return params

    @property
    def repeatable(self) -> bool:
        """Whether every row has a seed."""
        return all(row.get("seed", -1) not in (None, -1) for row in _each(self.params))

    def call(self) -> Call[SampleResult]:
        """Return POST /v1/sample, the tensors in its body."""
        return Call("POST", "/v1/sample", BINARY, body_of(self.tensors, self.fields), self.repeatable, read_sample)


def sample_call(logits: object, **arguments: Any) -> Call[SampleResult]:  # noqa: ANN401
    """Build POST /v1/sample: see `sample_request`."""
    return sample_request(logits, **arguments).call()


def sample_request(
    logits: object,
    *,
    params: Parameters | Sequence[Parameters] | None = None,
    keywords: Parameters = {},  # noqa: B006  (never written to)
    beside: Mapping[str, object] = MappingProxyType({}),
    logprobs: int = 0,
    logprobs_mode: str = "raw",
    trace: bool = False,
    strict: bool = False,
    dialect: str = "vllm",
    order: Sequence[str] | None = None,
    vocab_size: int | None = None,
    size: int | None = None,
) -> SampleRequest:
    """Build a request to sample; the arguments are those of `Client.sample`.

    `size` is its `compact`, `beside` its other tensors by name.

    Raises:
        TypeError, ValueError: tensors or parameters that cannot be sent at all; the service judges the rest.
    """
    merged = _merged(params, keywords)
    fields: dict[str, Any] = {
        "params": merged,
        "logprobs": logprobs,
        "logprobs_mode": logprobs_mode,
        "trace": trace,
        "strict": strict,
    }
    own = {"dialect": None if dialect == "vllm" else dialect, "order": order and list(order), "vocab_size": vocab_size}
    fields |= {name: value for name, value in own.items() if value is not None}
    rows = _rows(logits, size, merged)
    if isinstance(rows, Head):
        fields["vocab_size"] = rows.vocab_size
        tensors = _head_tensors(rows)
    else:
        tensors = {"logits": rows}
    tensors |= {name: as_rows(tensor_of(value)) for name, value in beside.items() if value is not None}
    return SampleRequest(tensors, fields)


def softmax_call(
    logits: object, temperature: float | Sequence[float], kind: str, noise: Parameters = MappingProxyType({})
) -> Call[SoftmaxResult]:
    """Build POST /v1/softmax; the arguments are those of `Client.softmax`, `noise` its seed, stream and step.

    Raises:
        TypeError, ValueError: logits or a temperature that cannot be sent at all.
    """
    key = {name: plain(name, value) for name, value in noise.items() if value is not None}
    fields = {"temperature": plain("temperature", temperature), "kind": kind, **key}
    seeds = key["seed"] if isinstance(key.get("seed"), list) else [key.get("seed")]
    repeatable = kind != "gumbel_softmax" or all(seed not in (None, -1) for seed in seeds)
    body = body_of({"logits": rows_of(logits)}, fields)
    return Call("POST", "/v1/softmax", BINARY, body, repeatable, read_softmax)


def info_call() -> Call[dict[str, Any]]:
    """Build GET /v1/info."""
    return Call("GET", "/v1/info", {"accept": "application/json"}, b"", True, read_info)


def _merged(params: Parameters | Sequence[Parameters] | None, keywords: Parameters) -> Any:  # noqa: ANN401
    """Return the parameters in JSON types, one object or one for each row; a row's own win over the keywords."""
    own = {} if params is None else params
    if isinstance(own, Mapping):
        return plain("params", {**keywords, **own})
    return [plain(f"params[{index}]", {**keywords, **row}) for index, row in enumerate(own)]


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
