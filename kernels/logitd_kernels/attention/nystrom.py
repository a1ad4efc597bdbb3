"""Nyström attention: softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺·softmax(Q̃Kᵀ)V through landmarks Q̃, K̃, the means of segments."""

import torch

from logitd_kernels.attention.call import Approximate, Call, Options
from logitd_kernels.attention.features.feature import primed
from logitd_kernels.attention.sequences import Sequence, check_structured, dtype_of, sequences
from logitd_kernels.errors import ParameterError

LANDMARKS = 64


def nystrom(call: Call, options: Options) -> Approximate:
    """Attend through landmarks, every sequence and head by itself.

    The pseudo-inverse is that of a singular value decomposition in float64, singular values below float32's precision
    taken for 0: an iteration's start would have to be chosen, and one chosen over a batch makes rows depend on others.
    Weights may be negative, but those of a row sum to 1 up to that cut. With as many landmarks as queries and keys, the
    answer is exact.

    Args:
        call: lengths are kept.
        options: `feature_dim` is the number of landmarks, None is 64; a sequence has at most as many as vectors.
    Raises:
        ParameterError: a causal call, mask, window, softcap, sink logits; a feature_dim that is not an integer ≥ 1.
    Source: Xiong et al. 2021, "Nyströmformer", eq. 13, arXiv:2102.03902.
    """
    check_structured(call, "nystrom", causal=False)
    landmarks = LANDMARKS if options.feature_dim is None else options.feature_dim
    if isinstance(landmarks, bool) or not isinstance(landmarks, int) or landmarks < 1:
        raise ParameterError("feature_dim", f"must be an integer of at least 1, got {landmarks!r}")
    output = torch.zeros(*call.q.shape[:3], call.v.shape[3], dtype=call.q.dtype)
    for row, sequence in enumerate(sequences(call)):
        if sequence.k.shape[1] and sequence.q.shape[1]:
            output[row, :, : sequence.q.shape[1]] = _attend(sequence, call.scaling, landmarks)
    dims = call.q.shape[3] + call.v.shape[3]
    return Approximate(
        output,
        torch.zeros(call.batch, call.heads, dtype=torch.int64),
        min(landmarks, call.keys) * dims * dtype_of(call).itemsize,
        _cost(call, landmarks, dims),
    )


def _attend(sequence: Sequence, scale: float, landmarks: int) -> torch.Tensor:
    q, k = primed(sequence.q, scale, sequence.q.dtype), primed(sequence.k, abs(scale), sequence.k.dtype)
    few_q, few_k = _segment_means(q, landmarks), _segment_means(k, landmarks)
    core = torch.softmax((few_q @ few_k.mT).double(), -1)
    inverse = torch.linalg.pinv(core, rtol=torch.finfo(torch.float32).eps * max(core.shape[1:]))
    near = torch.softmax(few_q @ k.mT, -1) @ sequence.v
    output: torch.Tensor = torch.softmax(q @ few_k.mT, -1) @ (inverse.to(near.dtype) @ near)
    return output


def _segment_means(x: torch.Tensor, count: int) -> torch.Tensor:
    """Return the means of `count` runs of almost equal length, of each vector alone where there are fewer."""
    length = x.shape[1]
    count = min(count, length)
    segment = torch.arange(length) * count // length
    sizes = torch.bincount(segment, minlength=count)[:, None]
    return x.new_zeros(x.shape[0], count, x.shape[2]).index_add_(1, segment, x) / sizes


def _cost(call: Call, landmarks: int, dims: int) -> float:
    """Count multiply-adds over Lq·Lk·(d + dv); a decomposition of c×c is taken as 20·c³."""
    exact = call.queries * call.keys * dims
    own, other = min(landmarks, call.queries), min(landmarks, call.keys)
    core = own * other * dims + 20 * max(own, other) ** 3
    return (call.queries * other * dims + call.keys * own * dims + core) / exact if exact else 0.0
