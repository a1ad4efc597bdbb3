"""The hot chain on heads as arrays: temperature, min_p, top_k, top_p and one draw a row, for a whole batch.

The counterpart of `hot.py` for the head form. What a compiled `Heads` answers has the bits of the formulas in
`sampling/`; a row that it does not decide runs through those.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from logitd_kernels.head import Floats
from logitd_kernels.hot import Answers, Requests

# Rows with only these active need no edit of single logits.
BARE = frozenset({"temperature", "min_p", "top_k", "top_p"})

# Why a row has no answer: ELSEWHERE is for the formulas to say, the others are what makes a head too short.
OK, ELSEWHERE, NEEDS_FIRST, NEEDS_HEAD, NEEDS_FLOOR, NEEDS_MASS, NEEDS_DRAW, TOKEN, KEPT = range(9)

# One head to sample, as the compiled kernels read it (`struct HeadRequest` in native/partial.h).
HEAD_REQUEST = np.dtype(
    [
        ("row", np.int64),  # of the batch
        ("plane", np.int64),  # the place of the temperature among those of log Z, or one past them; 0 for greedy
        ("temperature", np.float64),  # 0 for greedy
        ("min_p", np.float64),  # 0 off
        ("top_k", np.int64),  # 0 off
        ("top_p", np.float64),  # 1 off
        ("uniform", np.float64),  # decides the draw, in (0, 1]
        ("ties_all", np.bool_),  # whether top_k keeps all tokens equal to the k-th
    ],
    align=True,
)

# What a head answers (`struct HeadAnswer` in native/partial.h); all but status is meaningless where it is not OK.
HEAD_ANSWER = np.dtype(
    [
        ("status", np.int32),
        ("token", np.int64),
        ("logprob", np.float64),  # this and the rest as in `RowResult`; NaN and −1 where the tail leaves it open
        ("entropy", np.float64),
        ("entropy_kept", np.float64),
        ("kept", np.int64),
        ("kept_mass", np.float64),
        ("asked", np.int64),  # of NEEDS_FIRST and NEEDS_HEAD: how many logits, and how many are certain
        ("certain", np.int64),
        ("floor", np.float64),  # of NEEDS_FLOOR
    ],
    align=True,
)


class HeadBatch(NamedTuple):
    """R heads to sample out of a batch of B.

    Attributes:
        ids: [B, N] int32 or int64, any strides.
        logits: [B, N] float32, float16, bfloat16 or float64, any strides; in the total order unless NaN is in a row.
        log_z: [B, K] float32 or float64, any strides.
        temperatures: [K], at least one.
        finite_count: [B] int32 or int64, any stride, or None.
        vocab_size: V.
        requests: [R] of HEAD_REQUEST.
        planes: K when every temperature asked for is among those of log Z, else K + 1.
    """

    ids: torch.Tensor
    logits: torch.Tensor
    log_z: torch.Tensor
    temperatures: Floats
    finite_count: torch.Tensor | None
    vocab_size: int
    requests: Requests
    planes: int


Heads = Callable[[HeadBatch], Answers]
