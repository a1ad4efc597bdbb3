"""The compiled backend: the hot chain in C++, one thread a row, without sorting or copying a row.

`HOT` rows go through `sample_hot`; everything else sees its rows through `TorchRow`. Results have the same bits for
every thread count and instruction set.
"""

import os

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.hot import ANSWER, REQUEST, Answers, HotBatch, PlainRows
from logitd_kernels.hot_heads import HEAD_ANSWER, HEAD_REQUEST, HeadBatch
from logitd_kernels.native import missing
from logitd_kernels.native import module as _native
from logitd_kernels.rows import numbers_at

_AT_ONCE = 1 << 15  # exponentials of heads that are in the cache together
_DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}


def why_not() -> str | None:
    """Return why the compiled kernels cannot run here, None when they can."""
    return missing


def configure() -> None:
    """Take instruction set and threads from LOGITD_KERNELS_ISA and LOGITD_KERNELS_THREADS, for tests and benchmarks.

    Raises:
        ValueError: this machine does not run that instruction set.
    """
    if isa := os.environ.get("LOGITD_KERNELS_ISA"):
        _native.use_isa(isa)
    set_threads(int(os.environ.get("LOGITD_KERNELS_THREADS", len(os.sched_getaffinity(0)))))


def isa() -> str:
    """Return the instruction set in use: `avx512`, `avx2` or `portable`."""
    return str(_native.isa())


def isas() -> list[str]:
    """Return the instruction sets that this machine runs, fastest first."""
    return list(_native.isas())


def use_isa(name: str) -> None:
    """Switch the instruction set of the process; the answers do not change."""
    _native.use_isa(name)


def threads() -> int:
    """Return how many threads share a batch, the calling one included."""
    return int(_native.threads())


def set_threads(count: int) -> None:
    """Set how many threads share a batch; the answers do not change."""
    _native.set_threads(count)


def scratch_bytes() -> int:
    """Return the memory that the calling thread holds for rows: grown to its longest row, reused, never given back."""
    return int(_native.scratch_bytes())


def sample_hot(batch: HotBatch) -> Answers:
    """Run the hot chain on every row of a batch; see `HotBatch` and `ANSWER`."""
    answers = np.empty(len(batch.requests), ANSWER)
    sizes = [0 if ids is None else ids.shape[1] for ids in (batch.prompt_ids, batch.output_ids)]
    _native.sample(
        *_where(batch.logits),
        batch.requests,
        batch.mask,
        batch.edit_ids,
        batch.edit_bias,
        batch.prompt_ids,
        sizes[0],
        batch.output_ids,
        sizes[1],
        answers,
    )
    return answers


def sample_plain(rows: PlainRows, requests: bytes) -> bytearray:
    """Run the hot chain on rows that lie in a buffer: REQUEST records in, ANSWER records out, as bytes.

    Raises:
        ValueError: the buffer does not hold the rows, or a record has edits.
    """
    answers = bytearray(len(requests) // REQUEST.itemsize * ANSWER.itemsize)
    dtype = rows.dtype
    _native.sample_plain(rows.buffer, rows.offset, _DTYPES[dtype], dtype.itemsize, rows.vocab_size, requests, answers)
    return answers


def sample_heads(batch: HeadBatch) -> Answers:
    """Run the hot chain on every head of a batch; see `HeadBatch` and `HEAD_ANSWER`."""
    rows, size = batch.logits.shape
    logits = batch.logits if batch.logits.element_size() > 2 else batch.logits.float()
    counts = None if batch.finite_count is None else numbers_at(batch.finite_count[:, None])
    answers = np.empty(len(batch.requests), HEAD_ANSWER)
    step = min(len(answers), max(1, _AT_ONCE // (batch.planes * size)))
    deltas, masses = np.empty((2, step, batch.planes, size))
    for begin in range(0, len(answers), step):
        asked = batch.requests[begin : begin + step]
        own_deltas, own_masses = deltas[: len(asked)], masses[: len(asked)]
        _native.head_deltas(rows, size, numbers_at(logits), asked, batch.temperatures, own_deltas)
        np.exp(own_deltas, out=own_masses)  # numpy's, as in the formulas: the answers have the same bits
        _native.sample_heads(
            rows,
            size,
            batch.vocab_size,
            numbers_at(logits),
            numbers_at(batch.ids),
            numbers_at(batch.log_z),
            counts,
            batch.temperatures,
            asked,
            own_deltas,
            own_masses,
            answers[begin : begin + step],
        )
    return answers


def softmax(
    logits: torch.Tensor, temperatures: list[float], logarithm: bool, values: torch.Tensor | None
) -> tuple[NDArray[np.int32], NDArray[np.int64], torch.Tensor, torch.Tensor]:
    """Compute softmax(x/T), or its logarithm, of every row of a batch.

    Args:
        logits: [B, V], any of the four dtypes and any strides.
        temperatures: one a row, each > 0.
        values: contiguous [B, V] to fill, float64 for float64 logits, else float32; None leaves the values out.
    Returns:
        status [B] and place [B] as in `ANSWER`; log Z [B] and entropy [B], float64, undefined in bad rows.
    """
    rows = len(logits)
    status, place, log_z, entropy = np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows), np.empty(rows)
    address = 0 if values is None else values.data_ptr()
    _native.softmax(
        *_where(logits), np.array(temperatures, np.float64), logarithm, address, status, place, log_z, entropy
    )
    return status, place, torch.from_numpy(log_z), torch.from_numpy(entropy)


def floor_pass(logits: np.ndarray) -> float:
    """Block maxima and one sum of exponentials over a float32 row, on one thread: the floor of any sampler's time."""
    return float(_native.floor_pass(logits))


def _where(logits: torch.Tensor) -> tuple[int, int, int, int, int, int]:
    """Return address, dtype code, bytes of an element, both strides in elements, and V."""
    row_stride, stride = logits.stride()
    return logits.data_ptr(), _DTYPES[logits.dtype], logits.element_size(), row_stride, stride, logits.shape[1]


if _native is not None:
    assert (_native.request_bytes, _native.answer_bytes) == (REQUEST.itemsize, ANSWER.itemsize)
    assert (_native.head_request_bytes, _native.head_answer_bytes) == (HEAD_REQUEST.itemsize, HEAD_ANSWER.itemsize)
    configure()
