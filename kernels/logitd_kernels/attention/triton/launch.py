"""From features to kernel launches and back."""

from typing import Any

import torch
import triton

from logitd_kernels.attention.triton.linear import CHUNK, read_kernel, state_kernel
from logitd_kernels.errors import DtypeError, ShapeError
from logitd_kernels.select.triton import interpreted

SEGMENT = 256  # keys whose sum is kept: m · dv numbers for each, in the causal case
BLOCK_M, BLOCK_D = 32, 32  # 64 dims at once do not fit the registers of compute capability 8.0
VALUES = (torch.float32, torch.float16, torch.bfloat16)

# How each kernel is compiled.
OPTIONS: dict[Any, dict[str, Any]] = {state_kernel: {"num_warps": 4}, read_kernel: {"num_warps": 8}}


def constants(names: list[str], n_dims: int, causal: bool) -> dict[str, int]:
    """Return what a kernel with arguments of these names is compiled for."""
    block_d = max(16, min(BLOCK_D, triton.next_power_of_2(n_dims)))
    every = {"SEGMENT": SEGMENT, "CAUSAL": causal, "BLOCK_M": BLOCK_M, "BLOCK_D": block_d}
    return {name: value for name, value in every.items() if name in names}


def launch(
    phi_q: torch.Tensor, phi_k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the two kernels on the tensors' device; see `linear_attention`."""
    _check(phi_q, phi_k, v, causal)
    heads, queries, features = phi_q.shape
    keys, dims = v.shape[1:]
    numerator = torch.zeros(heads, queries, dims, device=v.device)
    denominator = torch.zeros(heads, queries, device=v.device)
    if 0 in (heads, queries, keys, features, dims):
        return numerator, denominator
    state, total = _states(phi_k, v, causal)
    chunks, fixed = triton.cdiv(queries, CHUNK.value), constants(read_kernel.arg_names, dims, causal)
    read_kernel[heads * chunks, triton.cdiv(dims, fixed["BLOCK_D"])](
        phi_q, phi_k, v, state, total, numerator, denominator,
        *phi_q.stride(), *phi_k.stride(), *v.stride(), queries, features, dims, chunks, state.shape[1],
        **fixed, **OPTIONS[read_kernel],
    )  # fmt: skip
    return numerator, denominator


def _states(phi_k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Σ φ(k) vᵀ [N, S, m, dv] and Σ φ(k) [N, S, m]: before each segment where causal, else of all (S = 1)."""
    heads, keys, features = phi_k.shape
    dims, segments = v.shape[2], triton.cdiv(keys, SEGMENT)
    state = torch.empty(heads, segments, features, dims, device=v.device)
    total = torch.empty(heads, segments, features, device=v.device)
    fixed = constants(state_kernel.arg_names, dims, causal)
    grid = (heads * segments, triton.cdiv(features, BLOCK_M), triton.cdiv(dims, fixed["BLOCK_D"]))
    state_kernel[grid](
        phi_k, v, state, total, *phi_k.stride(), *v.stride(), keys, features, dims, segments,
        **fixed, **OPTIONS[state_kernel],
    )  # fmt: skip
    if not causal:
        return state.sum(1, keepdim=True), total.sum(1, keepdim=True)
    return _before(state), _before(total)


def _before(sums: torch.Tensor) -> torch.Tensor:
    """Return the sum over earlier segments: [N, S, ...]."""
    return torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1].cumsum(1)], 1)


def _check(phi_q: torch.Tensor, phi_k: torch.Tensor, v: torch.Tensor, causal: bool) -> None:
    for name, tensor, dtypes in (("phi_q", phi_q, VALUES[:1]), ("phi_k", phi_k, VALUES[:1]), ("v", v, VALUES)):
        if tensor.ndim != 3:
            raise ShapeError(name, f"expected [heads, length, dim], got shape {list(tensor.shape)}")
        if tensor.dtype not in dtypes:
            raise DtypeError(name, f"expected one of {', '.join(map(str, dtypes))}, got {tensor.dtype}")
        if tensor.is_cuda == interpreted():
            raise DtypeError(name, f"expected a tensor where the kernels run, got one on {tensor.device}")
    if phi_k.shape[::2] != phi_q.shape[::2]:
        raise ShapeError("phi_k", f"expected heads and features as phi_q has, got {list(phi_k.shape)}")
    if v.shape[:2] != phi_k.shape[:2]:
        raise ShapeError("v", f"expected heads and keys as phi_k has, got {list(v.shape)}")
    if causal and phi_q.shape[1] != phi_k.shape[1]:
        raise ShapeError("phi_k", f"expected as many keys as the {phi_q.shape[1]} queries, got {phi_k.shape[1]}")
