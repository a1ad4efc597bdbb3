"""Exact attention in bfloat16 where the CPU multiplies it: faster, with an error of bfloat16's size."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from logitd_kernels.attention.call import Attended, Call
from logitd_kernels.attention.fused import run, why_not_fused
from logitd_kernels.attention.online import with_sinks
from logitd_kernels.errors import BackendUnavailable

_CPUINFO = Path("/proc/cpuinfo")
_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # the last is ARM's


def bf16_why_not(call: Call | None = None) -> str | None:
    """Return why `exact_bf16` cannot run here, or on this call; None when it can."""
    return _why_not_here() or (None if call is None else _why_not(_narrowed(call)))


@torch.no_grad()
def exact_bf16(call: Call) -> Attended:
    """Attend with q, k and v rounded to bfloat16, by torch's fused operator.

    Scores and sums are float32; weights are rounded to bfloat16 before they meet the values. The relative error is
    about 0.0025 on unit-normal input.

    Returns:
        Output in the dtype of q, and LSE, without entropy and max_prob.
    Raises:
        BackendUnavailable: with the reason of `bf16_why_not`.
    """
    narrowed = _narrowed(call)
    reason = _why_not_here() or _why_not(narrowed)
    if reason:
        raise BackendUnavailable("exact_bf16", reason)
    attended = run(narrowed, torch.bfloat16)
    if call.sink_logits is not None:
        attended = with_sinks(attended, call.sink_logits)
    return replace(attended, output=attended.output.to(call.q.dtype))


def _narrowed(call: Call) -> Call:
    return replace(call, q=call.q.bfloat16(), k=call.k.bfloat16(), v=call.v.bfloat16())


def _why_not(narrowed: Call) -> str | None:
    reason = why_not_fused(narrowed)
    return None if reason is None else f"torch's fused operator does not fit: {reason}"


@cache
def _why_not_here() -> str | None:
    try:
        flags = set(_CPUINFO.read_text().split())
    except OSError:
        return f"cannot read {_CPUINFO}"
    return None if flags & _FLAGS else "this CPU has no bfloat16 multiplication (amx_bf16, avx512_bf16)"
