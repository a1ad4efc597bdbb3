"""numpy's .npy: one tensor, for curl. Parameters travel in the query string."""

import io

import numpy as np

from logitd.errors import Invalid, Malformed
from logitd.wire.tensor import ITEM_BYTES, Tensor

MEDIA_TYPE = "application/x-npy"

_MAX_HEADER_BYTES = 10_000
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def decode(body: bytes | bytearray | memoryview) -> Tensor:
    """Return the tensor of a .npy body, a view where it is little-endian and row-major.

    Object arrays (pickles) are refused by their dtype, before any of their bytes is looked at.

    Raises:
        Malformed: not a .npy, or truncated. Invalid: a dtype that has no name on the wire.
    """
    view = memoryview(body).cast("B")
    shape, fortran, dtype, offset = _header(bytes(view[: _MAX_HEADER_BYTES + 12]))
    if dtype.hasobject or dtype.names or dtype.subdtype:
        raise Invalid.at("logits", f"expected a plain number dtype, got {dtype}")
    count = 1
    for dimension in shape:
        count *= dimension
    if count * dtype.itemsize != len(view) - offset:
        raise Malformed.at("body", f"shape {list(shape)} of {dtype} does not take the {len(view) - offset} bytes there")
    array = np.frombuffer(view[offset:], dtype=dtype).reshape(shape, order="F" if fortran else "C")
    try:
        return Tensor.of(array)
    except TypeError:
        raise Invalid.at("logits", f"expected one of {', '.join(ITEM_BYTES)}, got {dtype}") from None


def _header(start: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    stream = io.BytesIO(start)
    try:
        version = np.lib.format.read_magic(stream)
        read = _READERS.get(version)
        if read is None:
            raise ValueError(f"version {version} is not 1.0 or 2.0")
        shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER_BYTES)
    except Exception as error:  # numpy lets through whatever Python's tokenizer, parser and dtype() raise
        raise Malformed.at("body", f"not a .npy file: {str(error)[:100]}") from None
    if any(dimension < 0 for dimension in shape):
        raise Malformed.at("body", f"negative dimension in shape {list(shape)}")
    return shape, fortran, dtype, stream.tell()
