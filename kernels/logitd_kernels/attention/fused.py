"""Exact attention by torch's fused CPU operator, where it gives what the definition says."""

from dataclasses import dataclass
from typing import Any

import torch

from logitd_kernels.attention.call import Attended, Call
from logitd_kernels.attention.online import accumulator, blank
from logitd_kernels.attention.parts import SCORE_LIMIT, batch_row, largest

_NAME = "_scaled_dot_product_flash_attention_for_cpu"  # behind F.scaled_dot_product_attention; tells LSE too


def why_not_fused(call: Call) -> str | None:
    """Return why torch's operator would not give exact attention for a call, None where it does.

    Some reasons are faults of torch 2.13: a scale that is not positive makes NaN of causal rows, a NaN query is
    answered with zeros, a hidden NaN value shows, and empty tensors end the process.
    """
    return _why_not_form(call) or next((why for part in _parts(call) if (why := _why_not_numbers(part))), None)


@dataclass(frozen=True)
class Magnitudes:
    """The largest magnitudes among keys and among values, from who knows them: to look takes longer than a step."""

    keys: float
    values: float


def fused(call: Call, known: Magnitudes | None = None) -> Attended | None:
    """Attend by torch's operator, without entropy and max_prob and without `sink_logits`.

    Args:
        call: what to attend.
        known: of a call without lengths; None looks.
    Returns:
        Output and LSE, both float32 (float64 for float64 input); None where `why_not_fused` has a reason.
    """
    reason = _why_not_form(call) or _why_not_numbers(call, known) if known else why_not_fused(call)
    return None if reason else run(call, accumulator(call.q.dtype))


@torch.no_grad()
def run(call: Call, dtype: torch.dtype) -> Attended:
    """Run the operator on a call that it can answer, computing in `dtype`."""
    if call.visible.lengths is None:
        return _operate(call, dtype)
    whole = blank(call, accumulator(dtype), statistics=False)
    for index in range(call.batch):
        row = batch_row(call, index)
        part = _operate(row, dtype)
        whole.output[index, :, : row.queries] = part.output[0]
        whole.lse[index, :, : row.queries] = part.lse[0]
    return whole


def _operate(call: Call, dtype: torch.dtype) -> Attended:
    if call.batch == 0 or call.queries == 0 or call.keys == 0:
        return blank(call, accumulator(dtype), statistics=False)
    q, k, v = (_readable(tensor.to(dtype)) for tensor in (call.q, call.k, call.v))
    operator: Any = getattr(torch.ops.aten, _NAME)
    causal = call.visible.causal and not _last_query(call)
    output, lse = operator(q, k, v, 0.0, causal, scale=call.scaling)
    return Attended(output.to(lse.dtype), lse)


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """The operator takes for granted that the last dim is dense."""
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()


def _parts(call: Call) -> list[Call]:
    return [call] if call.visible.lengths is None else [batch_row(call, index) for index in range(call.batch)]


def _why_not_form(call: Call) -> str | None:
    reasons = {
        "this torch has no such operator": not hasattr(torch.ops.aten, _NAME),
        "it knows no window": call.visible.window is not None,
        "its masks let hidden values through": call.visible.mask is not None,
        "it knows no softcap": call.softcap is not None,
        "it needs values of the keys' dim": call.v.shape[3] != call.q.shape[3],
        "it needs a scale above 0": call.scaling <= 0,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _why_not_numbers(part: Call, known: Magnitudes | None = None) -> str | None:
    """Look at one batch row, or a batch without lengths."""
    if part.batch == 0 or part.queries == 0 or part.keys == 0:
        return None
    if part.visible.causal and int(part.offsets()[0]) != 0 and not _last_query(part):
        return "it is causal from the first key on only"
    known = known or Magnitudes(largest(part.k), largest(part.v))
    scores = largest(part.q) * known.keys * part.q.shape[3] * abs(part.scaling)
    if not (scores < SCORE_LIMIT and known.values * part.keys < SCORE_LIMIT):
        return "it hides what is not finite, and sums may overflow"
    return None


def _last_query(part: Call) -> bool:
    """Whether there is a single query and it stands at the last key: it sees them all."""
    return part.queries == 1 and part.visible.align == "bottom_right"
