"""The mean of the values a query sees: what an approximation of attention has to beat."""

import torch

from logitd_kernels.attention.call import Approximate, Call
from logitd_kernels.attention.sequences import Sequence, check_structured, dtype_of, sequences


def mean_v(call: Call) -> Approximate:
    """Answer every query with the mean of the values it sees, with causality the running mean.

    Sums are float64. q, k and the scale do not matter.

    Raises:
        ParameterError: a mask, a window, softcap or sink logits.
    """
    check_structured(call, "mean_v")
    output = torch.zeros(*call.q.shape[:3], call.v.shape[3], dtype=call.q.dtype)
    for row, sequence in enumerate(sequences(call)):
        seen = _seen(sequence, call.visible.causal)
        output[row, :, : sequence.q.shape[1]] = _running(sequence.v)[:, seen]
    columns = call.v.shape[3] + 1
    exact = call.queries * call.keys * (call.q.shape[3] + call.v.shape[3])
    return Approximate(
        output,
        torch.zeros(call.batch, call.heads, dtype=torch.int64),
        columns * dtype_of(call).itemsize,
        (call.queries + call.keys) * columns / exact if exact else 0.0,
    )


def _seen(sequence: Sequence, causal: bool) -> torch.Tensor:
    """Return how many keys each query sees: [R] int64."""
    queries, keys = sequence.q.shape[1], sequence.k.shape[1]
    if not causal:
        return torch.full((queries,), keys)
    return (torch.arange(queries) + sequence.offset + 1).clamp(0, keys)


def _running(v: torch.Tensor) -> torch.Tensor:
    """Return the mean of the first 0, 1, … n values, that of none being 0: [H, n + 1, dv] float64."""
    sums = torch.zeros(v.shape[0], v.shape[1] + 1, v.shape[2], dtype=torch.float64)
    torch.cumsum(v.double(), 1, out=sums[:, 1:])
    return sums / torch.arange(v.shape[1] + 1).clamp_min(1)[:, None]
