"""Arrays of any library as wire tensors. numpy is the only one that is imported."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd.wire.tensor import Tensor

FLOATS = ("F16", "BF16", "F32", "F64")


def tensor_of(array: object) -> Tensor:
    """View a numpy array, a torch tensor (copied to the CPU if it is elsewhere) or anything numpy can read.

    Raises:
        TypeError: a dtype that has no form on the wire.
        ValueError: a ragged list.
    """
    if isinstance(array, Tensor):
        return array
    if hasattr(array, "detach") and hasattr(array, "cpu"):  # torch, recognised without importing it
        return _of_torch(array.detach().cpu())
    return Tensor.of(np.asarray(array))


def floats_of(name: str, array: object) -> Tensor:
    """View an array as F16, BF16, F32 or F64; nested lists are F64.

    Raises:
        TypeError: not floating-point; `name` says what it was to be.
        ValueError: a ragged list.
    """
    tensor = tensor_of(np.asarray(array, dtype=np.float64) if isinstance(array, (list, tuple)) else array)
    if tensor.dtype not in FLOATS:
        raise TypeError(f"{name} must be one of {', '.join(FLOATS)}, got {tensor.dtype}")
    return tensor


def rows_of(logits: object) -> Tensor:
    """View logits as [B, V] F16, BF16, F32 or F64; [V] is one row, and nested lists are F64.

    Raises:
        TypeError: not floating-point.
        ValueError: neither one nor two dimensions.
    """
    tensor = as_rows(floats_of("logits", logits))
    if len(tensor.shape) != 2:
        raise ValueError(f"logits must have shape [rows, vocab] or [vocab], got {list(tensor.shape)}")
    return tensor


def as_rows(tensor: Tensor) -> Tensor:
    """Return [N] as [1, N]: one row; anything else as it is."""
    return Tensor(tensor.dtype, (1, *tensor.shape), tensor.data) if len(tensor.shape) == 1 else tensor


def widened(values: NDArray[Any], dtype: str) -> NDArray[np.floating[Any]]:
    """Return values of a float tensor, BF16 as raw uint16, in float32, or in float64 where they are F64. Lossless."""
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values if dtype == "F64" else values.astype(np.float32, copy=False)


def own_array(tensor: Tensor) -> NDArray[np.floating[Any]]:
    """Return a float tensor as an array of its own, which may be written to: torch warns of any other."""
    values = tensor.numpy()
    return widened(values, tensor.dtype) if tensor.dtype == "BF16" else values.copy()


def _of_torch(tensor: Any) -> Tensor:  # noqa: ANN401
    if str(tensor.dtype) != "torch.bfloat16":
        return Tensor.of(tensor.numpy())
    # numpy has no bfloat16: carry the bits as int16. Whoever made the tensor has imported torch.
    bits = tensor.contiguous().view(sys.modules["torch"].int16).numpy()
    return Tensor("BF16", tuple(tensor.shape), memoryview(bits.reshape(-1).view(np.uint8)))
