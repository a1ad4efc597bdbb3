"""The sequences of a call, one by one and without their padding: what methods that keep a state work on.

Rows of a batch are never computed together: none depends on its mates, and what lies beyond a length is never read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.errors import ParameterError


@dataclass(frozen=True)
class Sequence:
    """One batch row.

    Attributes:
        q: [Hq, R, d], the queries that are not padding.
        k: [Hq, n, d], the keys before the row's length, each KV head once for every query head that reads it.
        v: [Hq, n, dv]. All three float32, or float64 as the call is.
        offset: the position of the first query.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    offset: int


def dtype_of(call: Call) -> torch.dtype:
    """Return the dtype of all arithmetic: float32, float64 for float64."""
    return torch.float64 if call.q.dtype == torch.float64 else torch.float32


def sequences(call: Call) -> Iterator[Sequence]:
    """Yield every batch row."""
    padded = call.visible.lengths is not None and call.queries == call.keys
    dtype = dtype_of(call)
    for row, (length, offset) in enumerate(zip(call.lengths().tolist(), call.offsets().tolist(), strict=True)):
        q = call.q[row, :, : length if padded else call.queries]
        k, v = (x[row, :, :length].detach().to(dtype) for x in (call.k, call.v))
        if call.group > 1:
            k, v = k.repeat_interleave(call.group, 0), v.repeat_interleave(call.group, 0)
        yield Sequence(q.detach().to(dtype), k, v, offset)


def check_structured(call: Call, method: str, causal: bool = True) -> None:
    """Refuse a call whose rules the method cannot keep.

    Raises:
        ParameterError: naming the rule: `mask`, `window`, `softcap`, `sink_logits`, or `causal` where that is not kept.
    """
    refused = {
        "mask": call.visible.mask is not None,
        "window": call.visible.window is not None,
        "softcap": call.softcap is not None,
        "sink_logits": call.sink_logits is not None,
        "causal": call.visible.causal and not causal,
    }
    for field, given in refused.items():
        if given:
            kept = "padding lengths and causality" if causal else "padding lengths"
            raise ParameterError(field, f"{method} keeps {kept} alone; use exact attention")
