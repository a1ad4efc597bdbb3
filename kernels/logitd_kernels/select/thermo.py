"""Boltzmann sums of rows at temperatures, one pass over a row for each: compiled, or in numpy where nothing is."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.head import Floats, Ids
from logitd_kernels.native import module as _native

# One row at one temperature, with d = (x − M)/T and averages under softmax(x/T); laid out as Thermo in native/row.h:
# Σ e^d, the mean of M − x, the entropy in nats (a sum of its own), and the variance of d.
THERMO = np.dtype([(name, np.float64) for name in ("mass", "gap", "entropy", "variance")])
Thermo = Callable[[torch.Tensor, Ids, Floats, Floats], NDArray[Any]]

_DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
_STEEPEST = sys.float_info.max  # of 1/T


def compiled(logits: torch.Tensor, rows: Ids, largest: Floats, temperatures: Floats) -> NDArray[Any]:
    """Return the sums of some rows of a batch, each at temperatures of its own.

    The same bits for every instruction set and thread count; all rows and temperatures share the threads.

    Args:
        logits: [B, V], any of the four dtypes and any strides.
        rows: [R] places of rows that have a finite logit and neither NaN nor +inf.
        largest: [R] the largest logit of each.
        temperatures: [R, K], each > 0 and finite.
    Returns:
        [R, K] `THERMO` records.
    """
    sums = np.empty(temperatures.shape, THERMO)
    row_stride, stride = logits.stride()
    where = (logits.data_ptr(), _DTYPES[logits.dtype], logits.element_size(), row_stride, stride, logits.shape[1])
    _native.thermo(*where, rows, largest, np.ascontiguousarray(temperatures), sums)
    return sums


def portable(logits: torch.Tensor, rows: Ids, largest: Floats, temperatures: Floats) -> NDArray[Any]:
    """Return the same as `compiled`, within rounding: each sum as its formula says."""
    sums = np.empty(temperatures.shape, THERMO)
    for place, row in enumerate(rows.tolist()):
        with np.errstate(over="ignore"):
            gaps = largest[place] - logits[row].double().numpy()
        for column, temperature in enumerate(temperatures[place].tolist()):
            sums[place, column] = _sums(gaps, temperature)
    return sums


def _sums(gaps: Floats, temperature: float) -> tuple[float, float, float, float]:
    with np.errstate(over="ignore"):
        deltas = -gaps * min(1 / temperature, _STEEPEST)
    masses = np.exp(deltas)
    held = masses > 0  # 0 · −inf is 0 here
    deltas, masses, gaps = deltas[held], masses[held], gaps[held]
    mass = masses.sum()
    shares = masses / mass
    entropy = (shares * (np.log(mass) - deltas)).sum()
    off = deltas - (shares * deltas).sum()
    return float(mass), float((shares * gaps).sum()), max(0.0, float(entropy)), float((shares * off * off).sum())
