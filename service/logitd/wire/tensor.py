"""A tensor on the wire: a dtype name, a shape and bytes, before any array library sees it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Names as in safetensors; bfloat16 has no numpy dtype of its own.
ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}
NUMPY = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_NAMES = {np.dtype(code): name for name, code in NUMPY.items()}


@dataclass(slots=True)
class Tensor:
    """A dense little-endian, row-major tensor.

    Attributes:
        dtype: one of `ITEM_BYTES`.
        shape: the dimensions, outermost first.
        data: exactly the bytes of the elements; a view where possible.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Tensor":
        """View a numpy array; ml_dtypes' bfloat16 is BF16.

        Raises:
            TypeError: a dtype that has no name on the wire.
        """
        name = _NAMES.get(array.dtype)
        if name is not None and array.flags.c_contiguous:
            return cls(name, array.shape, array.reshape(-1).view(np.uint8).data)
        name = name or _NAMES.get(array.dtype.newbyteorder("<"))
        if name is None and array.dtype.name == "bfloat16":
            name = "BF16"
        if name is None:
            raise TypeError(f"arrays of {array.dtype} have no form on the wire; known are {', '.join(ITEM_BYTES)}")
        shape = tuple(array.shape)
        if array.dtype not in _NAMES and name != "BF16":
            array = array.astype(array.dtype.newbyteorder("<"))
        return cls(name, shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def numpy(self) -> NDArray[Any]:
        """Return a numpy view; BF16 comes as its raw uint16."""
        code = "<u2" if self.dtype == "BF16" else NUMPY[self.dtype]
        return np.frombuffer(self.data, dtype=code).reshape(self.shape)
