"""The hot chain as arrays: mask, bias, bans, temperature, min_p, top_k, top_p and one draw a row, for a whole batch.

Compiled backends take a `HotBatch` and fill a `HotResult`. What it computes is defined by the formulas in `sampling/`
and tested equal to them; what it does not cover runs through those formulas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.head import Floats, Ids

# Rows with only these active are the hot chain's.
HOT = frozenset({"mask", "logit_bias", "banned_ids", "allowed_ids", "temperature", "min_p", "top_k", "top_p"})

OK, NAN, POSINF, ALL_MASKED = 0, 1, 2, 3


@dataclass(frozen=True)
class HotBatch:
    """R rows to sample out of a batch of B.

    Attributes:
        logits: [B, V] float32, float16, bfloat16 or float64, any strides; never written to.
        rows: [R] int64, which rows of `logits`.
        mask: [R, ⌈V/32⌉] uint32 words, least significant bit first, 1 = allowed; None allows all.
        edit_offsets: [R + 1] int64, where each row's edits begin in the two arrays below.
        edit_ids: [E] int64, ascending and distinct within a row.
        edit_bias: [E] float64, added to the logit in float64; −inf forbids.
        temperature: [R] float64, 0 for greedy.
        min_p: [R] float64, 0 off.
        top_k: [R] int64, 0 off.
        ties_all: [R] bool, whether top_k keeps all tokens equal to the k-th.
        top_p: [R] float64, 1 off.
        seed: [R] uint64.
        stream, step: [R] uint32.
    """

    logits: torch.Tensor
    rows: Ids
    mask: NDArray[np.uint32] | None
    edit_offsets: Ids
    edit_ids: Ids
    edit_bias: Floats
    temperature: Floats
    min_p: Floats
    top_k: Ids
    ties_all: NDArray[np.bool_]
    top_p: Floats
    seed: NDArray[np.uint64]
    stream: NDArray[np.uint32]
    step: NDArray[np.uint32]


@dataclass(frozen=True)
class HotResult:
    """What each of the R rows answers; meaningless where `status` is not OK.

    Attributes:
        status: [R] int32, one of OK, NAN, POSINF, ALL_MASKED.
        place: [R] int64, the first logit that is NaN or +inf, −1 when the row is not bad for one.
        token: [R] int64.
        logprob, entropy, entropy_kept, kept_mass: [R] float64, as in `RowResult`.
        kept: [R] int64.
    """

    status: NDArray[np.int32]
    place: Ids
    token: Ids
    logprob: Floats
    entropy: Floats
    entropy_kept: Floats
    kept: Ids
    kept_mass: Floats

    @classmethod
    def empty(cls, rows: int) -> "HotResult":
        """Return arrays to be filled; their contents are undefined."""
        floats, integers = np.empty((4, rows)), np.empty((3, rows), np.int64)
        status, (place, token, kept), (logprob, entropy, entropy_kept, mass) = (
            np.empty(rows, np.int32),
            integers,
            floats,
        )
        return cls(status, place, token, logprob, entropy, entropy_kept, kept, mass)


Hot = Callable[[HotBatch], HotResult]


def hot_batch(
    logits: torch.Tensor,
    rows: Sequence[int],
    values: Sequence[Any],
    seeds: Sequence[int],
    allowed: Sequence[NDArray[np.bool_] | None],
    bias: Sequence[dict[int, float]],
) -> HotBatch:
    """Gather checked parameters and edits of rows into arrays.

    Args:
        logits: [B, V].
        rows: which rows.
        values: the checked parameters of each.
        seeds: the seed of each.
        allowed: for each, [V] booleans or None.
        bias: for each, {id: bias}.
    """
    ids = [np.array(sorted(one), np.int64) for one in bias]
    biases = [np.array([one[int(token)] for token in own], np.float64) for one, own in zip(bias, ids, strict=True)]
    return HotBatch(
        logits=logits,
        rows=np.array(rows, np.int64),
        mask=_packed(allowed, logits.shape[1]),
        edit_offsets=np.concatenate([[0], np.cumsum([len(own) for own in ids])]).astype(np.int64),
        edit_ids=np.concatenate(ids) if ids else np.zeros(0, np.int64),
        edit_bias=np.concatenate(biases) if biases else np.zeros(0),
        temperature=np.array([one["temperature"] for one in values], np.float64),
        min_p=np.array([one["min_p"] for one in values], np.float64),
        top_k=np.array([max(0, min(one["top_k"], logits.shape[1])) for one in values], np.int64),
        ties_all=np.array([one["ties"] == "all" for one in values], np.bool_),
        top_p=np.array([one["top_p"] for one in values], np.float64),
        seed=np.array(seeds, np.uint64),
        stream=np.array([one["stream"] for one in values], np.uint32),
        step=np.array([one["step"] for one in values], np.uint32),
    )


def _packed(allowed: Sequence[NDArray[np.bool_] | None], vocab_size: int) -> NDArray[np.uint32] | None:
    if all(one is None for one in allowed):
        return None
    words = np.full((len(allowed), -(-vocab_size // 32)), 0xFFFFFFFF, np.uint32)
    for row, one in enumerate(allowed):
        if one is not None:
            bits = np.packbits(one, bitorder="little")
            words.view(np.uint8).reshape(len(allowed), -1)[row, :] = 0
            words.view(np.uint8).reshape(len(allowed), -1)[row, : len(bits)] = bits
    return words
