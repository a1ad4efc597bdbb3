"""A request to sample whose tensors lie in shared memory, and its answer: Open Inference Protocol, model `sample`."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from logitd.client.call import SampleRequest
from logitd.client.reading import Json, reading
from logitd.client.request import Call
from logitd.client.results import Row, SampleResult
from logitd.wire.tensor import Tensor

_PATH = "/v2/models/sample/infer"
_JSON = {"content-type": "application/json"}
_ALIGNED_BYTES = 64
_DATATYPES = {"F32": "FP32", "F16": "FP16", "BF16": "BF16", "F64": "FP64", "I32": "INT32", "U32": "UINT32"}
_FLOATS = ("temperature", "top_p", "min_p")
_COLUMNS = {**dict.fromkeys(_FLOATS, "FP64"), "top_k": "INT64", "seed": "UINT64", "stream": "UINT32", "step": "UINT32"}
_OUTPUTS = {  # and what the numbers are exactly, which JSON writes as decimals
    "TOKEN": np.int64,
    "LOGPROB": np.float32,
    "ENTROPY": np.float32,
    "ENTROPY_KEPT": np.float32,
    "KEPT": np.int32,
    "KEPT_MASS": np.float32,
    "SEED": np.uint64,
    "STATUS": np.int32,
}


_UNSAYABLE = ("logprobs", "trace", "strict", "dialect", "order", "vocab_size")
_STATEFUL = ("mirostat", "adaptive_target")  # whose state the answer would lack


def is_expressible(request: SampleRequest) -> bool:
    """Return whether the protocol can say all of a request and all of its answer: whole rows, one draw, no extras."""
    fields, params = request.fields, request.params
    if any(fields.get(name) for name in _UNSAYABLE) or not set(request.tensors) <= {"logits", "mask"}:
        return False
    if request.tensors.get("mask", request.tensors["logits"]).dtype not in _DATATYPES:
        return False
    each = params if isinstance(params, list) else [params]
    if len(each) != request.tensors["logits"].shape[0] and isinstance(params, list):
        return False
    if any(row.get("n", 1) != 1 or any(row.get(name) for name in _STATEFUL) for row in each):
        return False
    if isinstance(params, dict):
        return not isinstance(params.get("seed", 0), str)
    return all(_is_column(name, each) or _is_shared(name, each) for name in {name for row in each for name in row})


def places_of(tensors: Mapping[str, Tensor]) -> tuple[dict[str, int], int]:
    """Return the offset of each tensor in a region, and the bytes that all take."""
    places, end = {}, 0
    for name, tensor in tensors.items():
        places[name] = end
        end += -(-tensor.data.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
    return places, end


def infer_call(request: SampleRequest, region: str, places: Mapping[str, int], info: Json) -> Call[SampleResult | None]:
    """Build the request; its answer is None where a row failed, of which the protocol does not say enough.

    Args:
        request: one that is expressible.
        region: the name under which the service knows the region.
        places: the offset of each tensor.
        info: of the service, for what its answer lacks.
    """
    params = request.params
    each = params if isinstance(params, list) else []
    columns = [name for name in _COLUMNS if each and name in each[0] and _is_column(name, each)]
    shared = {name: value for name, value in (each[0] if each else params).items() if name not in columns}  # type: ignore[union-attr]
    inputs = [
        {
            "name": name.upper(),
            "datatype": _DATATYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "parameters": {
                "shared_memory_region": region,
                "shared_memory_offset": places[name],
                "shared_memory_byte_size": tensor.data.nbytes,
            },
        }
        for name, tensor in request.tensors.items()
    ]
    inputs += [
        {
            "name": name.upper(),
            "datatype": _COLUMNS[name],
            "shape": [len(each), 1],
            "data": [row[name] for row in each],
        }
        for name in columns
    ]
    body = {
        "inputs": inputs,
        "outputs": [{"name": name} for name in _OUTPUTS],
        "parameters": {name: _parameter(value) for name, value in shared.items() if value is not None},
    }
    read = partial(_read, params=params, info=info)
    return Call("POST", _PATH, _JSON, json.dumps(body).encode(), request.repeatable, read)


def _read(body: bytes, params: Any, info: Json) -> SampleResult | None:  # noqa: ANN401
    with reading("sample"):
        outputs = {output["name"]: output["data"] for output in json.loads(body)["outputs"]}
        if any(outputs["STATUS"]):
            return None
        columns = {name.lower(): np.array(outputs[name], kind).tolist() for name, kind in _OUTPUTS.items()}
        neutral = {name: parameter["neutral"] for name, parameter in info["parameters"].items()}
        each = params if isinstance(params, list) else [params] * len(columns["token"])
        rows = [_row(columns, index, {**neutral, **given}) for index, given in enumerate(each)]
        effective = partial(_effective, known=info["parameters"])
        told = list(map(effective, params)) if isinstance(params, list) else effective(params)
        return SampleResult(rows, info["backend"]["name"], told, {})


def _effective(given: Json, known: Json) -> Json:
    """Return the parameters in force, as the service echoes them."""
    told = {name: parameter["neutral"] for name, parameter in known.items() if parameter["echoed"]}
    return told | {name: value for name, value in given.items() if value != known[name]["neutral"]}


def _row(columns: Mapping[str, list[Any]], index: int, params: Json) -> Row:
    row = {name: values[index] for name, values in columns.items() if name != "status"}
    return Row(
        **row,
        tokens=(row["token"],),
        tokens_logprob=(row["logprob"],),
        stream=params["stream"],
        step=params["step"],
        exact=True,
        error=None,
        logprob_raw=None,
        top=None,
        trace=None,
    )


def _is_column(name: str, each: list[Json]) -> bool:
    """Return whether a parameter can be an input with a number for each row."""
    kinds = (int, float) if name in _FLOATS else (int,)
    values = [row.get(name) for row in each]
    return name in _COLUMNS and all(
        isinstance(value, kinds) and not isinstance(value, bool) and (value >= 0 or name == "top_k") for value in values
    )


def _is_shared(name: str, each: list[Json]) -> bool:
    return all(name in row and row[name] == each[0][name] for row in each)


def _parameter(value: Any) -> Any:  # noqa: ANN401
    return json.dumps(value) if isinstance(value, (list, dict)) else value
