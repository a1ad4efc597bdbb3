"""The head form: a row's N largest logits and log Z of all of it, kilobytes in place of half a megabyte."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd.client.arrays import widened
from logitd.wire.tensor import Tensor

MAX_TEMPERATURES = 8
_BLOCK = 16_384


@dataclass(frozen=True, eq=False)
class Head:
    """Rows in head form, to be sampled in place of logits. Arrays may be numpy's, torch's or wire tensors.

    Attributes:
        ids: [B, N] int32 or int64 token ids of the N largest logits.
        logits: [B, N] float, in the total order (logit descending, token id ascending).
        log_z: [B, K] float: log Σ e^(x/T) over the whole row at each of `temperatures`; [B] when there is one.
        vocab_size: V.
        temperatures: the K temperatures of `log_z`; 1 first.
        finite_count: [B] int64, how many logits of the row are above −inf; None when unknown.
    """

    ids: Any
    logits: Any
    log_z: Any
    vocab_size: int
    temperatures: tuple[float, ...] = (1.0,)
    finite_count: Any = None


def compact(logits: Tensor, size: int, temperatures: Iterable[float] = ()) -> Head:
    """Select the `size` largest logits of every row, without sorting it, and sum up the whole row.

    A row with NaN or +inf gets the first of them at the front of its head and log Z = 0, one of −inf alone a head of
    −inf: the service answers such a row with its own error and the others as if it were not there.

    Args:
        logits: [B, V] F16, BF16, F32 or F64.
        size: N, with 1 ≤ N ≤ V.
        temperatures: those that the rows will be sampled at, beside T = 1. More than 8, or one so small that log Z
            overflows, would cost more than they save: they are left out and the service bounds log Z there.
    Returns:
        ids int32, logits float32 (float64 for F64), log_z float64, finite_count int64.
    """
    rows, vocab_size = logits.shape
    wanted = _columns(temperatures)
    ids = np.empty((rows, size), np.int32)
    values = np.empty((rows, size), np.float64 if logits.dtype == "F64" else np.float32)
    log_z = np.zeros((rows, len(wanted)))
    finite_count = np.zeros(rows, np.int64)
    for index, narrow in enumerate(logits.numpy()):
        row = widened(narrow, logits.dtype)
        maximum = float(row.max())
        ids[index] = largest(row, size)
        values[index] = row[ids[index]]
        finite_count[index] = np.count_nonzero(row > -np.inf)
        if math.isfinite(maximum):
            log_z[index] = _log_z(row, maximum, wanted)
    fits = [place for place in range(len(wanted)) if np.isfinite(log_z[:, place]).all()]
    return Head(ids, values, log_z[:, fits], vocab_size, tuple(wanted[place] for place in fits), finite_count)


def largest(row: NDArray[np.floating[Any]], size: int) -> NDArray[np.int64]:
    """Return the ids of the `size` largest logits of one row, [size] int64, in the total order.

    Of logits equal to the last one kept, the lowest ids are kept. NaN ranks as +inf, so that a bad row shows its fault.
    """
    ranked = np.where(np.isnan(row), np.inf, row) if np.isnan(row.max()) else row
    last = np.partition(ranked, len(row) - size)[len(row) - size]
    above = np.flatnonzero(ranked > last)
    tied = np.flatnonzero(ranked == last)[: size - len(above)]
    ids = np.concatenate([above, tied])  # equal logits by ascending id, which the stable sort keeps
    return ids[np.argsort(-ranked[ids], kind="stable")]


def _columns(temperatures: Iterable[float]) -> tuple[float, ...]:
    distinct = dict.fromkeys(temperatures)
    return tuple(dict.fromkeys((1.0, *distinct))) if len(distinct) <= MAX_TEMPERATURES else (1.0,)


def _log_z(row: NDArray[np.floating[Any]], maximum: float, temperatures: tuple[float, ...]) -> list[float]:
    totals = [0.0] * len(temperatures)
    with np.errstate(over="ignore"):  # a gap that overflows has no mass
        for start in range(0, len(row), _BLOCK):  # temporaries that stay in the cache: three times as fast
            gaps = row[start : start + _BLOCK].astype(np.float64) - maximum
            for place, temperature in enumerate(temperatures):
                totals[place] += float(np.exp(gaps / temperature).sum())
    return [maximum / temperature + math.log(total) for temperature, total in zip(temperatures, totals, strict=True)]
