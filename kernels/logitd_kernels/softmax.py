"""Softmax, log-softmax, log-sum-exp and entropy of whole rows, stable at any offset and temperature."""

from dataclasses import dataclass

import numpy as np
import torch

from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, ParameterError
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.hot import fault_of
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.result import RowFault

HOT = Number("temperature", 1.0, "Softmax temperature; at 0 there is no log Z.", gt=0)
KINDS = ("softmax", "log_softmax", "logsumexp")
_CHUNK = 1024


@dataclass(frozen=True)
class SoftmaxRows:
    """The distributions of a batch.

    Attributes:
        values: [B, V], float64 for float64 input, else float32; NaN in failed rows; None for `logsumexp`.
        log_z: [B] float64, log Σ e^(x/T), infinite where x/T passes float64; NaN in failed rows.
        entropy: [B] float64, nats; NaN in failed rows.
        faults: the failed rows.
    """

    values: torch.Tensor | None
    log_z: torch.Tensor
    entropy: torch.Tensor
    faults: list[RowFault]


def softmax(
    rows: DenseRows, temperatures: list[float], kind: str = "softmax", backend: Backend | None = None
) -> SoftmaxRows:
    """Compute softmax(x/T) or its logarithm for every row, with log Z and entropy.

        d = (x − M)/T,  log Σ = log Σ e^d,  softmax = e^d / Σ,  log-softmax = d − log Σ

    Computed in float64 whatever the input. −inf has probability 0; a row with NaN, +inf or nothing finite fails alone.

    Args:
        rows: the logits.
        temperatures: one a row, each > 0: at 0 there is no log Z.
        kind: one of `KINDS`.
        backend: where to compute; None picks one.
    Raises:
        ParameterError: a temperature that is not finite and > 0, another number of them than rows, an unknown kind.
    """
    if kind not in KINDS:
        raise ParameterError("kind", f"must be one of {', '.join(KINDS)}, got {kind!r}")
    if len(temperatures) != len(rows):
        raise ParameterError("temperature", f"expected one for each of {len(rows)} rows, got {len(temperatures)}")
    temperatures = [_checked(index, temperature) for index, temperature in enumerate(temperatures)]
    dtype = torch.float64 if rows.logits.dtype == torch.float64 else torch.float32
    values = None if kind == "logsumexp" else torch.full((len(rows), rows.vocab_size), torch.nan, dtype=dtype)
    compiled = (backend or pick("auto")).softmax
    if compiled is None:
        return _portable(rows, temperatures, kind, values)
    status, place, log_z, entropy = compiled(rows.logits, temperatures, kind == "log_softmax", values)
    faults = [
        fault_of(rows.logits, index, int(status[index]), int(place[index])) for index in np.flatnonzero(status).tolist()
    ]
    for fault in faults:
        log_z[fault.row] = entropy[fault.row] = torch.nan
    return SoftmaxRows(values, log_z, entropy, faults)


def _checked(row: int, temperature: object) -> float:
    try:
        return HOT.check(temperature)
    except ParameterError as error:
        raise ParameterError(error.field, error.message, row) from None


def _portable(rows: DenseRows, temperatures: list[float], kind: str, values: torch.Tensor | None) -> SoftmaxRows:
    log_z = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    entropy = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    faults: list[RowFault] = []
    for index, temperature in enumerate(temperatures):
        try:
            row = rows.row(index).double()
        except BadRow as bad:
            faults.append(RowFault(index, bad.code, bad.kind, bad.detail))
            continue
        largest = row.max()
        deltas = (row - largest) / temperature
        masses = torch.exp(deltas)
        log_sum = torch.log(_sum(masses))
        log_z[index] = largest / temperature + log_sum
        entropy[index] = (log_sum - _sum(masses * deltas.clamp(min=-1e6)) / _sum(masses)).clamp(min=0.0)
        if values is not None:
            values[index] = deltas - log_sum if kind == "log_softmax" else torch.exp(deltas - log_sum)
    return SoftmaxRows(values, log_z, entropy, faults)


def _sum(values: torch.Tensor) -> torch.Tensor:
    """Sum in fixed chunks: the bits do not depend on torch's thread count."""
    whole = len(values) // _CHUNK * _CHUNK
    parts = torch.cat([values[:whole].view(-1, _CHUNK).sum(1), values[whole:].sum().view(1)])
    return parts.sum()
