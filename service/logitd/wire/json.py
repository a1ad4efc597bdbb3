"""JSON bodies: text to fields, and nested lists to tensors. For people; programs send safetensors."""

import json
from itertools import chain
from typing import Any

import numpy as np
import orjson

from logitd.errors import Invalid, Malformed
from logitd.wire.tensor import Tensor

MEDIA_TYPE = "application/json"

_WORDS = {"-inf": -np.inf, "-infinity": -np.inf, "inf": np.inf, "infinity": np.inf, "nan": np.nan}
_INT64 = 1 << 63
_MAX_DEPTH = 8


def parse(body: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Return the object in a JSON body.

    NaN and ±Infinity, which JSON does not have but many encoders write, are read as numbers, so that a bad logit fails
    its own row and a bad parameter is named.

    Raises:
        Malformed: not UTF-8, not JSON, too deep, or not an object.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = _parse_with_nan(bytes(body), str(error))
    if not isinstance(value, dict):
        raise Malformed.at("body", f"expected a JSON object, got {_kind(value)}")
    return value


def canonical(text: bytes) -> dict[str, Any] | None:
    """Return the object in JSON as programs write it: without blanks, and no name twice. None for anything else.

    It is the same when it is written again, which takes a fraction of the time of looking at every name.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and orjson.dumps(value) == text.rstrip(b" ") else None


def _parse_with_nan(body: bytes, reason: str) -> object:
    if b"NaN" not in body and b"Infinity" not in body:
        raise Malformed.at("body", f"not valid JSON: {reason}")
    try:
        return json.loads(body)
    except RecursionError:
        raise Malformed.at("body", "not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise Malformed.at("body", f"not valid JSON: {error}") from None


def float_matrix(value: object, path: str) -> Tensor:
    """Return nested lists [[number, …], …] as F64 [B, V]; null and "-inf" mean −inf.

    Raises:
        Invalid: not a list of equally long lists of numbers; the path of the first fault is named.
    """
    rows = [_floats(row, f"{path}[{place}]") for place, row in enumerate(_list(value, path))]
    _check_equal(rows, path)
    return Tensor.of(np.array(rows, dtype=np.float64).reshape(len(rows), len(rows[0]) if rows else 0))


def float_tensor(value: object, path: str, rank: int) -> Tensor:
    """Return lists nested `rank` deep as F64; null and "-inf" mean −inf.

    Raises:
        Invalid: not equally long lists of numbers; the path of the first fault is named.
    """
    return Tensor.of(_nested_floats(value, path, rank))


def _nested_floats(value: object, path: str, rank: int) -> np.ndarray:
    if rank == 1:
        return _floats(value, path)
    if rank == 2 and (matrix := _plain_matrix(value)) is not None:
        return matrix
    parts = [_nested_floats(part, f"{path}[{place}]", rank - 1) for place, part in enumerate(_list(value, path))]
    for place, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise Invalid.at(f"{path}[{place}]", f"expected shape {list(parts[0].shape)}, got {list(part.shape)}")
    return np.stack(parts) if parts else np.zeros((0,) * rank)


def _plain_matrix(value: object) -> np.ndarray | None:
    """Read rows of one length that hold numbers alone, without a step of Python for each; None for anything else."""
    if not isinstance(value, list) or set(map(type, value)) != {list} or len(set(map(len, value))) != 1:
        return None
    flat = list(chain.from_iterable(value))
    if not set(map(type, flat)) <= {float, int}:
        return None
    try:
        return np.array(flat, np.float64).reshape(len(value), len(value[0]))
    except OverflowError:  # an integer beyond float64
        return None


def mask_tensor(value: object, path: str) -> Tensor:
    """Return nested lists of booleans (BOOL) or of numbers (F64): at most 8 deep, as deep as they are."""
    depth, inner = 0, value
    while isinstance(inner, list) and inner and depth < _MAX_DEPTH:
        depth, inner = depth + 1, inner[0]
    if not isinstance(inner, bool):
        return float_tensor(value, path, max(depth, 1))
    return Tensor.of(_nested_bools(value, path, depth))


def _nested_bools(value: object, path: str, rank: int) -> np.ndarray:
    items = _list(value, path)
    if rank > 1:
        parts = [_nested_bools(part, f"{path}[{place}]", rank - 1) for place, part in enumerate(items)]
    elif set(map(type, items)) <= {bool}:
        return np.array(items, np.bool_)
    else:
        raise Invalid.at(path, "expected booleans alone, or numbers alone")
    if len({part.shape for part in parts}) > 1:
        raise Invalid.at(path, "expected equally long lists")
    return np.stack(parts)


def float_vector(value: object, path: str) -> Tensor:
    """Return [number, …] as F64 [B]."""
    return Tensor.of(_floats(value, path))


def int_matrix(value: object, path: str) -> Tensor:
    """Return nested lists of integers as I64 [B, N]."""
    rows = [_integers(row, f"{path}[{place}]") for place, row in enumerate(_list(value, path))]
    _check_equal(rows, path)
    return Tensor.of(np.array(rows, dtype=np.int64).reshape(len(rows), len(rows[0]) if rows else 0))


def int_vector(value: object, path: str) -> Tensor:
    """Return [integer, …] as I64 [B]."""
    return Tensor.of(_integers(value, path))


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise Invalid.at(path, f"expected a list, got {_kind(value)}")
    return value


def _floats(value: object, path: str) -> np.ndarray:
    row = _list(value, path)
    if set(map(type, row)) <= {float, int}:
        try:
            return np.array(row, dtype=np.float64)
        except OverflowError:  # an integer beyond float64: find and name it
            pass
    return np.array([_float(item, path, place) for place, item in enumerate(row)], dtype=np.float64)


def _float(item: object, path: str, place: int) -> float:
    if item is None:
        return -np.inf
    if isinstance(item, str) and item.lower().lstrip("+") in _WORDS:
        return _WORDS[item.lower().lstrip("+")]
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise Invalid.at(f"{path}[{place}]", f'expected a number, null or "-inf", got {_kind(item)}')
    try:
        return float(item)
    except OverflowError:
        raise Invalid.at(f"{path}[{place}]", "is beyond float64") from None


def _integers(value: object, path: str) -> np.ndarray:
    row = _list(value, path)
    for place, item in enumerate(row):
        if type(item) is not int or not -_INT64 <= item < _INT64:
            raise Invalid.at(f"{path}[{place}]", f"expected a 64-bit integer, got {_kind(item)}")
    return np.array(row, dtype=np.int64)


def _check_equal(rows: list[np.ndarray], path: str) -> None:
    for place, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise Invalid.at(f"{path}[{place}]", f"expected {len(rows[0])} numbers as in row 0, got {len(row)}")


def _kind(value: object) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)
