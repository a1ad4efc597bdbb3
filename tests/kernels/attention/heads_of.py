"""Random queries, keys and values, and how an answer is held against the definition."""

from typing import Any

import torch

from logitd_kernels.attention.call import Attended, Call
from logitd_kernels.attention.reference import reference

PARTS = ("output", "lse", "entropy", "max_prob")


def heads_of(
    queries: int,
    keys: int | None = None,
    *,
    batch: int = 1,
    heads: int = 2,
    kv_heads: int | None = None,
    dim: int = 16,
    dim_v: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    spread: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return q [B, H, Lq, d], k [B, Hkv, Lk, d] and v [B, Hkv, Lk, dv], normal; q and k times `spread`."""
    keys, kv_heads, dim_v = queries if keys is None else keys, kv_heads or heads, dim_v or dim
    generator = torch.Generator().manual_seed(1000 * queries + keys + seed)
    shapes = [(batch, heads, queries, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, dim_v)]
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return (q * spread).to(dtype), (k * spread).to(dtype), v.to(dtype)


CALL = ("visible", "scale", "softcap", "sink_logits")


def call_of(queries: int, keys: int | None = None, **options: Any) -> Call:
    """Return a call on such tensors; `options` are those of `heads_of` and of `Call`."""
    of_call = {name: options.pop(name) for name in CALL if name in options}
    return Call(*heads_of(queries, keys, **options), **of_call)


def assert_as_reference(got: Attended, call: Call, tolerance: float = 1e-5) -> None:
    """Compare every part of an answer with float64, and what it says of queries that see nothing."""
    want = reference(call)
    blind = want.lse == -torch.inf
    for name in PARTS:
        found = getattr(got, name)
        if found is not None:
            torch.testing.assert_close(
                found.double(), getattr(want, name), rtol=tolerance, atol=tolerance, equal_nan=True, msg=_told(name)
            )
            assert (found[blind] == (-torch.inf if name == "lse" else 0)).all(), name


def _told(name: str) -> Any:
    return lambda message: f"{name}: {message}"
