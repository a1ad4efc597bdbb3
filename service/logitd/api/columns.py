"""What rows report as columns: tensors [B] and [B, n], for programs."""

from collections.abc import Container, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd.api.requests import SampleJob
from logitd.wire import safetensors
from logitd.wire.tensor import NUMPY
from logitd_kernels.sampling.result import RowFault, RowResult

Arrays = dict[str, NDArray[Any]]
Answer = RowResult | RowFault

# What every row reports, by column.
_DTYPES = {
    "token": "I64",
    "logprob": "F32",
    "entropy": "F32",
    "entropy_kept": "F32",
    "kept_mass": "F32",
    "kept": "I32",
    "seed": "U64",
    "status": "I32",
}
_CODES = {"I64": "q", "F32": "f", "I32": "i", "U64": "Q"}
_ROW = np.dtype([(name, NUMPY[dtype]) for name, dtype in _DTYPES.items()])
_FAILED = (-1, None, None, None, None, -1, 0, 1)


def _numbers(answer: Answer) -> tuple[Any, ...]:
    """Return a row of _ROW."""
    if isinstance(answer, RowFault):
        return _FAILED
    kept = -1 if answer.kept is None else answer.kept
    logprob, entropies = answer.logprobs[0], (answer.entropy, answer.entropy_kept)
    return (answer.tokens[0], logprob, *entropies, answer.kept_mass, kept, answer.seed, 0)


def sample_tensors(job: SampleJob, answers: Sequence[Answer], wanted: Container[str] | None = None) -> Arrays:
    """Return what rows report as arrays, [B] or [B, n]; NaN and −1 where a row failed or a number is unknown.

    Args:
        job: what was asked.
        answers: one a row.
        wanted: the names, of those that every row reports, to return; None for all.
    """
    table = _table(answers)
    every = {name: table[name].copy() for name in _DTYPES if wanted is None or name in wanted}
    return every | more_tensors(job, answers)


def _table(answers: Sequence[Answer]) -> NDArray[np.void]:
    with np.errstate(over="ignore"):  # beyond float32 a log-probability is −inf
        return np.array([_numbers(answer) for answer in answers], _ROW)  # None becomes NaN


def columns(answers: Sequence[Answer]) -> safetensors.Packed:
    """Return what every row reports, as it is sent."""
    count = len(answers)
    specs, packed = _layout(count)
    try:
        data = packed.pack(*chain.from_iterable(zip(*map(_numbers, answers), strict=True)))
    except (OverflowError, StructError):  # beyond float32 a log-probability is −inf, and None becomes NaN
        table = _table(answers)
        data = b"".join([table[name].tobytes() for name in _DTYPES])
    return specs, data


@lru_cache(64)
def _layout(rows: int) -> tuple[tuple[safetensors.Spec, ...], Struct]:
    specs = tuple((name, dtype, (rows,)) for name, dtype in _DTYPES.items())
    return specs, Struct("<" + "".join(f"{rows}{_CODES[dtype]}" for dtype in _DTYPES.values()))


def more_tensors(job: SampleJob, answers: Sequence[Answer]) -> Arrays:
    """Return what was asked for beside that: further draws, and log-probabilities."""
    tensors: Arrays = {}
    draws = max((values["n"] for values in job.values), default=1)
    count = job.fields.logprobs
    if draws == 1 and not count:
        return tensors
    ok = [answer if isinstance(answer, RowResult) else None for answer in answers]
    if draws > 1:
        tensors["tokens"] = _padded([a.tokens if a else [] for a in ok], draws, -1, np.int64)
        tensors["tokens_logprob"] = _padded([a.logprobs if a else [] for a in ok], draws, np.nan, np.float32)
    if count:
        tops = [a.top if a else None for a in ok]
        raw = [top.of_tokens[:1] if top else [] for top in tops]
        tensors["logprob_raw"] = _padded(raw, 1, np.nan, np.float32)[:, 0]
        tensors["top_tokens"] = _padded(
            [[t.token for t in top.top] if top else [] for top in tops], count, -1, np.int64
        )
        logprobs = [[t.logprob for t in top.top] if top else [] for top in tops]
        tensors["top_logprobs"] = _padded(logprobs, count, np.nan, np.float32)
    return tensors


def _padded(rows: Sequence[Sequence[Any]], width: int, pad: float, dtype: type) -> NDArray[Any]:
    table: NDArray[Any] = np.full((len(rows), width), pad, dtype)
    with np.errstate(over="ignore"):  # beyond float32 a log-probability is −inf
        for place, row in enumerate(rows):
            table[place, : len(row)] = row  # None becomes NaN
    return table
