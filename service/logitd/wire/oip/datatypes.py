"""The protocol's datatypes, and tensors written as JSON."""

import math
from itertools import chain
from typing import Any

import numpy as np

from logitd.errors import Malformed
from logitd.wire.tensor import Tensor

# Names in the protocol, and as in safetensors. BYTES is no number: only an output has it.
DTYPES = {
    "BOOL": "BOOL",
    "UINT8": "U8",
    "UINT16": "U16",
    "UINT32": "U32",
    "UINT64": "U64",
    "INT8": "I8",
    "INT16": "I16",
    "INT32": "I32",
    "INT64": "I64",
    "FP16": "F16",
    "BF16": "BF16",
    "FP32": "F32",
    "FP64": "F64",
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
BINARY_ONLY = ("FP16", "BF16")

_MAX_DEPTH = 8
_NUMPY: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP32": np.float32,
    "FP64": np.float64,
}


def from_json(data: object, datatype: str, shape: tuple[int, ...], path: str) -> Tensor:
    """Return a tensor that was sent as a JSON list, flat or nested, in row-major order.

    Raises:
        Malformed: a datatype that JSON cannot carry, another number of elements than the shape has, or an element that
            does not fit the datatype.
    """
    if datatype in BINARY_ONLY:
        raise Malformed.at(path, f"{datatype} has no JSON form: send it as binary data, or as FP32")
    flat = _flat(data, path)
    elements = math.prod(shape)
    if len(flat) != elements:
        raise Malformed.at(path, f"expected {elements} elements for shape {list(shape)}, got {len(flat)}")
    allowed = {bool} if datatype == "BOOL" else {int, float} if datatype in ("FP32", "FP64") else {int}
    if not set(map(type, flat)) <= allowed:
        place = next(place for place, item in enumerate(flat) if type(item) not in allowed)
        raise Malformed.at(path, f"element {place} is no {datatype}")
    try:
        with np.errstate(over="ignore"):  # beyond float32 a number is infinite, and its row says so
            return Tensor.of(np.array(flat, _NUMPY[datatype]).reshape(shape))
    except OverflowError:
        raise Malformed.at(path, f"an element is beyond {datatype}") from None


def to_json(tensor: Tensor) -> list[Any]:
    """Return a tensor's elements as a flat list.

    JSON has no infinities and no NaN, and clients read no null: +∞ is the largest number of the datatype, −∞ and NaN
    are the smallest.
    """
    array = tensor.numpy().reshape(-1)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        limits = np.finfo(array.dtype)
        array = np.nan_to_num(array, nan=limits.min, posinf=limits.max, neginf=limits.min)
    return array.tolist()


def _flat(data: object, path: str) -> list[Any]:
    if not isinstance(data, list):
        raise Malformed.at(path, "expected a list of elements")
    for _ in range(_MAX_DEPTH):
        lists = sum(isinstance(item, list) for item in data)
        if not lists:
            return data
        if lists != len(data):
            raise Malformed.at(path, "lists and elements are mixed")
        data = list(chain.from_iterable(data))
    raise Malformed.at(path, f"lists are nested more than {_MAX_DEPTH} deep")
