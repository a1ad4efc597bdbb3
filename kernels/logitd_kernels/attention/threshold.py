"""Up to how many keys exact attention is the faster one, measured on this machine."""

import time
from collections.abc import Callable
from functools import cache

import torch

from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.hybrid.attend import hybrid

LENGTHS = (512, 1024, 2048)
_DIM, _TRIES = 64, 3


@cache
def measured_threshold() -> int:
    """Return the longest of `LENGTHS` at which exact attention is no slower than `hybrid`, at least the first of them.

    One head of dim 64, float32, the better of some tries each: a fraction of a second, once a process.
    """
    for length in reversed(LENGTHS):
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, 1, length, _DIM, generator=generator) for _ in range(3))
        call = Call(q, k, v)
        if _seconds(_exactly, call) <= _seconds(_linearly, call):
            return length
    return LENGTHS[0]


def _exactly(call: Call) -> object:
    return exact(call, statistics=False)


def _linearly(call: Call) -> object:
    return hybrid(call, Options())


def _seconds(work: Callable[[Call], object], call: Call) -> float:
    best = float("inf")
    for _ in range(_TRIES):
        began = time.perf_counter()
        work(call)
        best = min(best, time.perf_counter() - began)
    return best
