"""What an attention call refuses: each function raises ShapeError, DtypeError or ParameterError, naming its field."""

import math

import torch

from logitd_kernels.errors import DtypeError, ParameterError, ShapeError

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def check_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse q, k and v that do not fit together."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_tensor(name, tensor, q)
    if q.shape[3] != k.shape[3]:
        raise ShapeError("k", f"expected dim {q.shape[3]} as q has, got {k.shape[3]}")
    if k.shape[1:3] != v.shape[1:3]:
        raise ShapeError("v", f"expected {list(k.shape[1:3])} heads and keys as k has, got {list(v.shape[1:3])}")
    if q.shape[1] == 0 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ShapeError("q", f"expected a multiple of the {k.shape[1]} KV heads, got {q.shape[1]} heads")
    if q.shape[3] == 0 or v.shape[3] == 0:
        raise ShapeError("q" if q.shape[3] == 0 else "v", "expected a dim of at least 1, got 0")


def _check_tensor(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    if tensor.ndim != 4:
        raise ShapeError(name, f"expected [batch, heads, length, dim], got shape {list(tensor.shape)}")
    if tensor.dtype not in DTYPES:
        raise DtypeError(name, f"expected float32, float16, bfloat16 or float64, got {tensor.dtype}")
    if tensor.dtype != q.dtype:
        raise DtypeError(name, f"expected the dtype of q, {q.dtype}, got {tensor.dtype}")
    if tensor.device.type != "cpu":
        raise DtypeError(name, f"expected a tensor on the CPU, got one on {tensor.device}")
    if tensor.shape[0] != q.shape[0]:
        raise ShapeError(name, f"expected batch {q.shape[0]} as q has, got {tensor.shape[0]}")


def check_numbers(scale: float | None, softcap: float | None) -> None:
    """Refuse a scale or softcap that is none."""
    for name, value in (("scale", scale), ("softcap", softcap)):
        if value is not None and not math.isfinite(value):
            raise ParameterError(name, f"must be finite, got {value}")
    if softcap is not None and softcap <= 0:
        raise ParameterError("softcap", f"must be > 0, got {softcap}")


def check_sink_logits(sinks: torch.Tensor | None, heads: int) -> None:
    """Refuse sink logits that are not one number a head."""
    if sinks is None:
        return
    if sinks.shape != (heads,) or not sinks.is_floating_point():
        raise ShapeError("sink_logits", f"expected a float tensor [{heads}], got {list(sinks.shape)} {sinks.dtype}")
    if (torch.isnan(sinks) | (sinks == math.inf)).any():
        raise ParameterError("sink_logits", "must be finite or -inf")


def check_places(align: str, window: int | None, sinks: int) -> None:
    """Refuse an alignment, window or number of sinks that is none."""
    if align not in ("bottom_right", "top_left"):
        raise ParameterError("align", f'must be "bottom_right" or "top_left", got {align!r}')
    if window is not None and window < 1:
        raise ParameterError("window", f"must be at least 1 key, got {window}")
    if sinks < 0:
        raise ParameterError("sinks", f"must be at least 0, got {sinks}")


def check_lengths(lengths: torch.Tensor | None, batch: int, keys: int) -> None:
    """Refuse lengths that are not one number of keys a batch row."""
    if lengths is None:
        return
    if lengths.shape != (batch,) or lengths.dtype not in (torch.int32, torch.int64):
        raise ShapeError("lengths", f"expected int32 or int64 [{batch}], got {list(lengths.shape)} {lengths.dtype}")
    if ((lengths < 0) | (lengths > keys)).any():
        raise ShapeError("lengths", f"expected numbers from 0 to the {keys} keys, got {lengths.tolist()[:8]}")


def check_mask(mask: torch.Tensor | None, full: tuple[int, ...]) -> None:
    """Refuse a mask that does not broadcast to [B, Hq, Lq, Lk], or a bias of NaN or +inf."""
    if mask is None:
        return
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise DtypeError("mask", f"expected bool or float, got {mask.dtype}")
    if mask.ndim != 4 or any(size not in (1, whole) for size, whole in zip(mask.shape, full, strict=True)):
        raise ShapeError("mask", f"expected a shape that broadcasts to {list(full)}, got {list(mask.shape)}")
    if mask.is_floating_point() and (torch.isnan(mask) | (mask == math.inf)).any():
        raise ParameterError("mask", "a bias must be finite or -inf")
