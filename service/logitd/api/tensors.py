"""Between the wire's tensors and torch: views, no copies."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from logitd.wire.tensor import ITEM_BYTES, NUMPY, Tensor

TORCH = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def to_torch(tensor: Tensor) -> torch.Tensor:
    """Return a torch view of a wire tensor's bytes; copies only what is misaligned or read-only."""
    data = tensor.data
    dtype = TORCH[tensor.dtype]
    if data.nbytes == 0:
        return torch.empty(tensor.shape, dtype=dtype)
    if data.readonly:
        data = memoryview(bytearray(data))
    if tensor.dtype in NUMPY:
        array = np.frombuffer(data, NUMPY[tensor.dtype]).reshape(tensor.shape)
        return torch.from_numpy(array if array.flags.aligned else array.copy())
    if np.frombuffer(data, np.uint8).ctypes.data % ITEM_BYTES[tensor.dtype]:
        data = memoryview(bytearray(data))
    return torch.frombuffer(data, dtype=dtype).reshape(tensor.shape)


def to_wire(tensor: torch.Tensor) -> Tensor:
    """Return a torch tensor's bytes as they go on the wire; copies what is not contiguous."""
    name = next(name for name, dtype in TORCH.items() if dtype == tensor.dtype)
    flat = tensor.detach().contiguous().reshape(-1)
    return Tensor(name, tuple(tensor.shape), flat.view(torch.uint8).numpy().data)


def digest(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """Return SHA-256 over fields, which must have a form in JSON, and over every byte, shape and dtype of tensors."""
    found = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.data)
    return found.digest()
