"""Linear attention: φ(Q)(φ(K)ᵀV) over its normaliser φ(Q)(φ(K)ᵀ1), for any feature map of the registry."""

import torch

from logitd_kernels.attention.call import Approximate, Call, Options
from logitd_kernels.attention.features.feature import Setting, primed
from logitd_kernels.attention.features.moments import Moments
from logitd_kernels.attention.features.registry import METHODS, method_named
from logitd_kernels.attention.features.state import FeatureState, Read
from logitd_kernels.attention.sequences import Sequence, check_structured, dtype_of, sequences
from logitd_kernels.errors import ParameterError


def linear(call: Call, method: str, options: Options, moments: Moments | None = None) -> Approximate:
    """Attend through a feature map, in time and memory linear in the length.

    Causal calls go in chunks of `options.chunk`: what a query sees inside its chunk by φ(q)·φ(k), what is before it by
    the state. All arithmetic is float32, float64 for float64.

    Args:
        call: causality, alignment and lengths are kept.
        method: a name of `METHODS`.
        options: `feature_dim`, `seed`, `orthogonal` and `chunk`.
        moments: of q' and k', [Hq, d] …, for maps that adapt to them. None measures them on each sequence: then those
            of a causal call see the whole of it. They set the map alone: no weight of a later key enters an answer.
    Returns:
        The output, 0 for a query without keys and for one whose normaliser is not positive; the latter are counted.
    Raises:
        ParameterError: an unknown method, a feature_dim, seed or chunk that is none, or a rule that a linear state
            cannot keep: mask, window, softcap, sink_logits.
    Source: Katharopoulos et al. 2020, "Transformers are RNNs", eq. 5 and 9, arXiv:2006.16236.
    """
    check_structured(call, method)
    if isinstance(options.chunk, bool) or not isinstance(options.chunk, int) or options.chunk < 1:
        raise ParameterError("chunk", f"must be an integer of at least 1, got {options.chunk!r}")
    output = torch.zeros(*call.q.shape[:3], call.v.shape[3], dtype=call.q.dtype)
    refused = torch.zeros(call.batch, call.heads, dtype=torch.int64)
    for row, sequence in enumerate(sequences(call)):
        state = _state(call, method, options, sequence, moments)
        answer = _causal(state, sequence, options.chunk) if call.visible.causal else _whole(state, sequence)
        output[row, :, : sequence.q.shape[1]], refused[row] = answer
    nobody = call.q.new_zeros(call.heads, 0, call.q.shape[3])
    shape = _state(call, method, options, Sequence(nobody, nobody, nobody, 0), moments)
    return Approximate(output, refused, shape.bytes // call.heads, _cost(call, shape, options.chunk))


def _state(call: Call, method: str, options: Options, sequence: Sequence, moments: Moments | None) -> FeatureState:
    if moments is None and method_named(method).adapts:
        moments = Moments.of(
            primed(sequence.q, call.scaling, dtype_of(call)), primed(sequence.k, abs(call.scaling), dtype_of(call))
        )
    horizon = max(sequence.q.shape[1], sequence.k.shape[1], 1)
    setting = Setting(call.q.shape[3], call.scaling, options, moments, horizon, dtype_of(call))
    return FeatureState(method, setting, call.heads, call.v.shape[3])


def _whole(state: FeatureState, sequence: Sequence) -> Read:
    state.append(sequence.k, sequence.v)
    return state.read(sequence.q, sequence.offset)


def _causal(state: FeatureState, sequence: Sequence, chunk: int) -> Read:
    """Attend with the queries whose position is a key's; those before see nothing, those after everything."""
    q, keys, offset = sequence.q, sequence.k.shape[1], sequence.offset
    first, last = (min(max(edge - offset, 0), q.shape[1]) for edge in (0, keys))
    within, refused = state.attend(q[:, first:last], sequence.k, sequence.v, first + offset, chunk)
    after, more = state.read(q[:, last:], last + offset)
    return torch.cat([within.new_zeros(len(q), first, within.shape[2]), within, after], 1), refused + more


def _cost(call: Call, state: FeatureState, chunk: int) -> float:
    """Count multiply-adds over Lq·Lk·(d + dv): lifting, the state's sums, the reads, the inside of chunks, moments."""
    exact = call.queries * call.keys * (call.q.shape[3] + call.v.shape[3])
    if not exact:
        return 0.0
    size, columns = state.map.size, call.v.shape[3] + 1
    vector = state.map.work + size * columns + (call.q.shape[3] ** 2 if METHODS[state.method].adapts else 0)
    inside = call.queries * min(chunk, call.keys) * (size + columns) if call.visible.causal else 0
    return ((call.queries + call.keys) * vector + inside) / exact
