"""safetensors, both ways, without copying a tensor: u64 header length, JSON header, bytes.

Our own reader rather than the library's, because it hands out views into the received body (the library copies) and
names the field that is wrong. Tests hold it against the library.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from logitd.errors import Malformed
from logitd.wire.tensor import ITEM_BYTES, Tensor

MEDIA_TYPE = "application/vnd.safetensors"

_DUMPS = json.JSONEncoder(separators=(",", ":")).encode
_MAX_HEADER_BYTES = 8 << 20  # per-row parameters of a large batch fit; nothing legitimate is larger
_MAX_TENSORS = 1024  # q, k and v of every layer of a model
_MAX_RANK = 8
Spec = tuple[str, str, tuple[int, ...]]  # name, dtype and shape of a tensor
Packed = tuple[tuple[Spec, ...], bytes]

ENTRY = {"dtype", "shape", "data_offsets"}  # what a tensor has in a header


def encode(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], packed: Packed = ((), b"")
) -> list[bytes | memoryview]:
    """Return the chunks of a safetensors file: length and header, then each tensor's own bytes, uncopied.

    Args:
        tensors: by their names.
        metadata: strings.
        packed: tensors that come before them and lie one behind the other already.
    """
    specs, data = packed
    layout = _layout((*specs, *[(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()]))
    told = ",".join([f"{_quoted(name)}:{_quoted(value)}" for name, value in metadata.items()])
    text = f'{{"__metadata__":{{{told}}}{layout}}}'.encode()
    text += b" " * (-len(text) % 8)  # tensors start aligned, so that views need no copy
    return [len(text).to_bytes(8, "little") + text, data, *[tensor.data for tensor in tensors.values()]]


@lru_cache(256)
def _layout(tensors: tuple[Spec, ...]) -> str:
    """Return a header's entries for tensors one behind the other; answers repeat theirs."""
    text, offset = [], 0
    for name, dtype, shape in tensors:
        end = offset + ITEM_BYTES[dtype] * math.prod(shape)
        entry = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        text.append(f",{_DUMPS(name)}:{_DUMPS(entry)}")
        offset = end
    return "".join(text)


def decode(
    body: bytes | bytearray | memoryview, parse: Callable[[bytes], dict[str, Any] | None] = lambda _: None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, as views into the body, and its metadata.

    Args:
        body: the file.
        parse: a faster reader of headers, which returns None for those that it leaves to this one.
    Raises:
        Malformed: truncated, offsets that overlap, leave gaps or do not fit the shape, an unknown dtype, a duplicate
            name, or a header that is not JSON of the documented form; the message names the tensor.
    """
    view = memoryview(body).cast("B")
    if len(view) < 8:
        raise Malformed.at("body", f"a safetensors file starts with 8 bytes of header length, got {len(view)} bytes")
    (size,) = struct.unpack("<Q", view[:8])
    if size > min(_MAX_HEADER_BYTES, len(view) - 8):
        raise Malformed.at(
            "body", f"header length {size} exceeds the {min(_MAX_HEADER_BYTES, len(view) - 8)} bytes there"
        )
    text = bytes(view[8 : 8 + size])
    header = parse(text) or _header(text)
    metadata = _metadata(header.pop("__metadata__", {}))
    if len(header) > _MAX_TENSORS:
        raise Malformed.at("body", f"at most {_MAX_TENSORS} tensors, got {len(header)}")
    data = view[8 + size :]
    available = len(data)
    spans: list[tuple[int, int, str]] = []
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        dtype, shape, begin, end = _entry(name, entry, available)
        spans.append((begin, end, name))
        tensors[name] = Tensor(dtype, shape, data[begin:end])
    spans.sort()
    _check_spans(spans, available)
    return tensors, metadata


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = _DECODER.decode(text.decode())
    except RecursionError:
        raise Malformed.at("body", "the safetensors header is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise Malformed.at("body", f"the safetensors header is not JSON: {_short(error)}") from None
    if not isinstance(header, dict):
        raise Malformed.at("body", "the safetensors header must be a JSON object")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name is there twice")
    return names


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def _metadata(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Malformed.at("__metadata__", "must be an object of strings")
    return metadata


def _entry(name: str, entry: object, available: int) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(entry, dict) or entry.keys() != ENTRY:
        raise Malformed.at(_short(name), "must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise Malformed.at(_short(name), f"unknown dtype {_short(dtype)}; known are {', '.join(ITEM_BYTES)}")
    if not _naturals(shape) or len(shape) > _MAX_RANK:
        raise Malformed.at(_short(name), f"shape must be at most {_MAX_RANK} integers ≥ 0")
    if not _naturals(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= available:
        raise Malformed.at(_short(name), f"data_offsets must be [begin, end] within the {available} bytes of data")
    expected, span = ITEM_BYTES[dtype], 1
    for dimension in shape:
        expected *= dimension
        span *= max(dimension, 1)
    if span >= 1 << 60:  # that nothing is in it does not help: strides are still computed
        raise Malformed.at(_short(name), "shape is too large")
    if offsets[1] - offsets[0] != expected:
        raise Malformed.at(
            _short(name), f"{dtype} of shape {shape} takes {_short(expected)} bytes, data_offsets span others"
        )
    return dtype, tuple(shape), offsets[0], offsets[1]


def _check_spans(spans: list[tuple[int, int, str]], available: int) -> None:
    reached = 0
    for begin, end, name in spans:
        if begin != reached:
            raise Malformed.at(
                _short(name), "data_offsets overlap another tensor's" if begin < reached else "a gap before its data"
            )
        reached = end
    if reached != available:
        raise Malformed.at("body", f"{available - reached} bytes follow the last tensor")


def _naturals(value: object) -> bool:
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        return False
    return not value or (min(value) >= 0 and max(value) < 1 << 62)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
