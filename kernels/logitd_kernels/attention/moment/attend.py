"""Moment attention: every weight is a calibrated quadratic polynomial of the logit; time is linear in the length."""

import torch

from logitd_kernels.attention.call import Approximate, Call, Options
from logitd_kernels.attention.moment.calibrate import Basis, basis_of, check_rank, sample_size
from logitd_kernels.attention.moment.chunk import attend_chunk
from logitd_kernels.attention.moment.read import quotient
from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.attention.sequences import Sequence, check_structured, dtype_of, sequences
from logitd_kernels.errors import ParameterError


@torch.no_grad()
def moment(call: Call, options: Options, basis: Basis | None = None) -> Approximate:
    """Attend by a moment state.

    The weight of key j for query i, up to what all keys share, with x, y, b and s² as in `read`:

        e^ω_j (1 − κ/2 + (x_ij − b_i) + (y_ij − b_r,i)² / 2),  κ = min(s_i², 1)

    A normaliser is at least the sum of e^ω_j, so none fails while it is finite. In a causal call every query has b and
    s² of the keys that it sees, wherever chunks begin: the output is that of one state fed key by key.

    Args:
        call: causality, alignment and lengths are kept.
        options: `rank` (without a basis), and `chunk` of causal calls.
        basis: coordinates to use, [Hq, ...] or [B, Hq, ...]; None calibrates on the call.
    Returns:
        The output, float32 arithmetic throughout (float64 for float64).
    Raises:
        ParameterError: a rank or chunk that is none, or a rule that a state cannot keep: mask, window, softcap,
            sink_logits; `scale`, where q, k and the scale are too large for second order.
        ShapeError: a basis for other heads.
    """
    check_structured(call, "moment")
    check_rank(options.rank)
    if isinstance(options.chunk, bool) or not isinstance(options.chunk, int) or options.chunk < 1:
        raise ParameterError("chunk", f"must be an integer of at least 1, got {options.chunk!r}")
    bases = basis_of(call, options.rank, basis)
    output = torch.zeros(*call.q.shape[:3], call.v.shape[3], dtype=dtype_of(call))
    refused = torch.zeros(call.batch, call.heads, dtype=torch.int64)
    for row, sequence in enumerate(sequences(call)):
        if not sequence.k.shape[1]:
            continue
        state, out = MomentState(bases[row], call.v.shape[3]), output[row, :, : sequence.q.shape[1]]
        if call.visible.causal:
            refused[row] = _causal(state, sequence, call.scaling, options.chunk, out)
        else:
            state.append(sequence.k, sequence.v)
            refused[row] = state.answer(sequence.q, call.scaling, out).sum(1)
    rank = min(bases.rank, bases.dim)
    numbers = (1 + call.q.shape[3] + rank * (rank + 1) // 2) * (call.v.shape[3] + 1)
    cost = _cost(call, rank, options.chunk, calibrated=basis is None)
    return Approximate(output.to(call.q.dtype), refused, numbers * dtype_of(call).itemsize, cost)


def _causal(state: MomentState, sequence: Sequence, scale: float, chunk: int, out: torch.Tensor) -> torch.Tensor:
    """Go through the keys in chunks, queries beside the key of their position; those past the last one see all."""
    q, keys, offset = sequence.q, sequence.k.shape[1], sequence.offset
    failed = torch.zeros(len(q), dtype=torch.int64)
    for start in range(0, keys, chunk):
        k, v = sequence.k[:, start : start + chunk], sequence.v[:, start : start + chunk]
        first, last = (min(max(edge - offset, 0), q.shape[1]) for edge in (start, start + k.shape[1]))
        if first < last:
            sums = attend_chunk(state, q[:, first:last] * scale, k, v, first + offset - start)
            failed += quotient(*sums, out[:, first:last]).sum(1)
        state.append(k, v)
    after = max(0, keys - offset)
    return failed + state.answer(q[:, after:], scale, out[:, after:]).sum(1)


def _cost(call: Call, rank: int, chunk: int, calibrated: bool) -> float:
    """Count multiply-adds over Lq·Lk·(d + dv): projections, sums, reads, chunks, covariances."""
    d, columns, size = call.q.shape[3], call.v.shape[3] + 1, rank * (rank + 1) // 2
    exact = call.queries * call.keys * (d + call.v.shape[3])
    if not exact:
        return 0.0
    key = d * (rank + 1) + size + (1 + d + size) * columns
    query = d * rank + size + (1 + d + rank + size) * columns
    inside = (d + rank + columns) * min(chunk, call.keys) if call.visible.causal else 0
    work = call.keys * key + call.queries * (query + inside)
    if calibrated:
        work += (min(call.keys, sample_size(d)) + min(call.queries, sample_size(d))) * d * d
    return work / exact
