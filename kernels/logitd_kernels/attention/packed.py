"""Exact attention of sequences laid end to end: no padding, and nobody sees another sequence."""

from dataclasses import replace
from itertools import pairwise

import torch

from logitd_kernels.attention.call import Attended, Call, Visible
from logitd_kernels.attention.exact import exact
from logitd_kernels.errors import ParameterError, ShapeError


@torch.no_grad()
def packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    visible: Visible | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink_logits: torch.Tensor | None = None,
    statistics: bool = True,
) -> Attended:
    """Attend exactly within each of N sequences.

    Args:
        q: [T, Hq, d], all sequences' queries.
        k: [S, Hkv, d].
        v: [S, Hkv, dv].
        cu_seqlens_q: [N + 1] int32 or int64, where sequences begin and, last, end: 0, ..., T.
        cu_seqlens_k: [N + 1] the same for keys: 0, ..., S.
        visible: of each sequence on its own; no lengths and no mask. None is all.
        scale, softcap, sink_logits: as `Call` has them.
        statistics: whether to find entropy and max_prob.
    Returns:
        output [T, Hq, dv], and lse, entropy and max_prob [T, Hq].
    Raises:
        ShapeError, DtypeError, ParameterError: naming the tensor or parameter.
    """
    visible = visible or Visible()
    for name in ("lengths", "mask"):
        if getattr(visible, name) is not None:
            raise ParameterError(name, "packed sequences take none")
    for tensor_name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim != 3:
            raise ShapeError(tensor_name, f"expected [total length, heads, dim], got shape {list(tensor.shape)}")
    starts_q = _checked("cu_seqlens_q", cu_seqlens_q, len(q))
    starts_k = _checked("cu_seqlens_k", cu_seqlens_k, len(k))
    if len(starts_q) != len(starts_k):
        raise ShapeError("cu_seqlens_k", f"expected {len(starts_q)} entries as cu_seqlens_q has, got {len(starts_k)}")
    whole = Call(_batch(q), _batch(k), _batch(v), visible, scale, softcap, sink_logits)
    parts = []
    for at in range(len(starts_q) - 1):
        queries, keys = slice(starts_q[at], starts_q[at + 1]), slice(starts_k[at], starts_k[at + 1])
        one = replace(whole, q=whole.q[:, :, queries], k=whole.k[:, :, keys], v=whole.v[:, :, keys])
        parts.append(exact(one, statistics=statistics))
    return _joined(parts, whole, statistics)


def _batch(tensor: torch.Tensor) -> torch.Tensor:
    """View [T, H, d] as [1, H, T, d]."""
    return tensor.transpose(0, 1)[None]


def _checked(name: str, starts: torch.Tensor, total: int) -> list[int]:
    if starts.ndim != 1 or len(starts) == 0 or starts.dtype not in (torch.int32, torch.int64):
        raise ShapeError(name, f"expected int32 or int64 [N + 1], got {list(starts.shape)} {starts.dtype}")
    bounds: list[int] = starts.tolist()
    if bounds[0] != 0 or bounds[-1] != total or any(a > b for a, b in pairwise(bounds)):
        raise ParameterError(name, f"must ascend from 0 to {total}, the length of all sequences, got {bounds[:8]}")
    return bounds


def _joined(parts: list[Attended], whole: Call, statistics: bool) -> Attended:
    if not parts:
        parts = [exact(whole, statistics=statistics)]  # N = 0: T = S = 0

    def join(name: str) -> torch.Tensor:
        return torch.cat([getattr(part, name) for part in parts], 2)[0].transpose(0, 1)

    if not statistics:
        return Attended(join("output"), join("lse"))
    return Attended(join("output"), join("lse"), join("entropy"), join("max_prob"))
