"""Where commands read logits: a file or standard input, .npy, safetensors or JSON, told apart by content."""

import io
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from logitd.cli.failure import CannotRun
from logitd.client import Head
from logitd.client.arrays import FLOATS, rows_of
from logitd.errors import Malformed
from logitd.wire import safetensors
from logitd.wire.tensor import ITEM_BYTES, Tensor

_NPY_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class Source:
    """What `Client.sample` takes: logits or a `Head`, and a mask if there is one."""

    logits: Any
    mask: Tensor | None = None


def read(path: str, vocab_size: int | None) -> Source:
    """Read a file, `-` for standard input.

    Args:
        path: the file.
        vocab_size: V for a head form; None takes it from the file's own `request` metadata.
    Raises:
        CannotRun: unreadable, or not logits.
    """
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror}") from error
    try:
        return _parse(content, vocab_size)
    except (Malformed, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise CannotRun(f"{'standard input' if path == '-' else path}: {error}") from error


def one_row(logits: object, index: int, path: str) -> Tensor:
    """Return one row of logits as [1, V].

    Raises:
        CannotRun: there is no such row, or these are not rows of floats.
    """
    try:
        rows = rows_of(logits)
    except (TypeError, ValueError) as error:
        raise CannotRun(f"{path}: {error}") from error
    count, vocab_size = rows.shape
    if not 0 <= index < count:
        raise CannotRun(f"--row {index}: {path} has rows 0 to {count - 1}" if count else f"{path} has no rows")
    size_bytes = vocab_size * ITEM_BYTES[rows.dtype]
    return Tensor(rows.dtype, (1, vocab_size), rows.data[index * size_bytes : (index + 1) * size_bytes])


def _parse(content: bytes, vocab_size: int | None) -> Source:
    if content.startswith(_NPY_MAGIC):
        return Source(np.load(io.BytesIO(content), allow_pickle=False))
    # safetensors starts with a u64 that is never large: a zero byte, which JSON cannot hold
    if b"\0" in content[:8]:
        return _safetensors(content, vocab_size)
    return Source(_json(content))


def _json(content: bytes) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        document = json.loads(content)
    except ValueError:
        raise ValueError("is neither .npy, nor safetensors, nor JSON") from None
    if isinstance(document, dict):
        if set(document) != {"logits"}:
            raise ValueError('JSON must be {"logits": [[…]]} or a list alone; parameters are flags')
        document = document["logits"]
    if not isinstance(document, list):
        raise ValueError("JSON must be a list of logits, or a list of such lists")
    rows = document if any(isinstance(item, list) for item in document) else [document]
    if not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        raise ValueError("every row must be a list of the same length")
    return np.array([[_logit(item) for item in row] for row in rows], np.float64)


def _logit(item: object) -> float:
    """Read one logit; null and "-inf" are −inf, as in a request."""
    if item is None or item == "-inf":
        return -math.inf
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise ValueError(f'a logit must be a number, null or "-inf", got {json.dumps(item)[:40]}')
    return float(item)


def _safetensors(content: bytes, vocab_size: int | None) -> Source:
    tensors, metadata = safetensors.decode(content)
    mask = tensors.get("mask")
    if "logits" in tensors:
        return Source(tensors["logits"], mask)
    if "head_logits" in tensors:
        return Source(_head(tensors, vocab_size or _stated_vocab_size(metadata)), mask)
    found = [name for name, tensor in tensors.items() if tensor.dtype in FLOATS and len(tensor.shape) in (1, 2)]
    if len(found) != 1:
        raise ValueError(
            f"must hold a tensor named logits or a single float tensor, found {', '.join(found) or 'none'}"
        )
    return Source(tensors[found[0]], mask)


def _head(tensors: dict[str, Tensor], vocab_size: int | None) -> Head:
    missing = [name for name in ("head_ids", "log_z") if name not in tensors]
    if missing:
        raise ValueError(f"head_logits is there, {' and '.join(missing)} is not")
    if vocab_size is None:
        raise ValueError("a head form needs --vocab-size")
    temperatures = tensors.get("log_z_temperatures")
    return Head(
        ids=tensors["head_ids"],
        logits=tensors["head_logits"],
        log_z=tensors["log_z"],
        vocab_size=vocab_size,
        temperatures=(1.0,) if temperatures is None else tuple(temperatures.numpy().tolist()),
        finite_count=tensors.get("head_finite_count"),
    )


def _stated_vocab_size(metadata: dict[str, str]) -> int | None:
    """Return the vocab_size of a file that is a saved request body."""
    request = json.loads(metadata.get("request", "{}"))
    size = request.get("vocab_size") if isinstance(request, dict) else None
    return size if isinstance(size, int) else None
