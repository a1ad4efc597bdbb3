"""Distributions of whole rows: softmax and its logarithm, sparse maps, and softmax under Gumbel noise."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, ParameterError
from logitd_kernels.gumbel import Noise, gumbel_noise
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.hot import fault_of
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.result import RowFault
from logitd_kernels.sparse import entmax15, entropy_of, sparsemax

HOT = Number("temperature", 1.0, "Softmax temperature; at 0 there is no log Z.", gt=0)
_SPARSE = {"sparsemax": sparsemax, "entmax15": entmax15}
NOISY = "gumbel_softmax"
_CHUNK = 1024
KINDS = ("softmax", "log_softmax", "logsumexp", *_SPARSE, NOISY)


@dataclass(frozen=True)
class SoftmaxRows:
    """The distributions of a batch.

    Attributes:
        values: [B, V], float64 for float64 input, else float32; NaN in failed rows; None for `logsumexp`.
        log_z: [B] float64, log Σ e^(x/T), infinite where x/T passes float64; of the noisy logits for `gumbel_softmax`;
            NaN in failed rows, and for `sparsemax` and `entmax15`, which have none.
        entropy: [B] float64, −Σ p ln p in nats of the distribution; NaN in failed rows.
        faults: the failed rows.
    """

    values: torch.Tensor | None
    log_z: torch.Tensor
    entropy: torch.Tensor
    faults: list[RowFault]


def softmax(
    rows: DenseRows,
    temperatures: list[float],
    kind: str = "softmax",
    backend: Backend | None = None,
    noise: Sequence[Noise] = (),
) -> SoftmaxRows:
    """Compute a distribution of every row at its temperature, with log Z and entropy.

        d = (x − M)/T,  log Σ = log Σ e^d,  softmax = e^d / Σ,  log_softmax = d − log Σ
        sparsemax = max(d − τ, 0),  entmax15 = max(d/2 − τ, 0)²,  τ such that they sum to 1
        gumbel_softmax = softmax of (x + g)/T, g the row's `noise`

    Computed in float64 whatever the input. −inf has probability 0; a row with NaN, +inf or nothing finite fails alone.
    A row has the same bits alone and in any batch, on any number of threads.

    Args:
        rows: the logits.
        temperatures: one a row, each > 0: at 0 there is no log Z.
        kind: one of `KINDS`.
        backend: where to compute; None picks one.
        noise: one a row for `gumbel_softmax`, none for any other kind.
    Raises:
        ParameterError: a temperature that is not finite and > 0, another number of them or of `noise` than rows, an
            unknown kind.
    """
    if kind not in KINDS:
        raise ParameterError("kind", f"must be one of {', '.join(KINDS)}, got {kind!r}")
    if len(temperatures) != len(rows):
        raise ParameterError("temperature", f"expected one for each of {len(rows)} rows, got {len(temperatures)}")
    if len(noise) != (len(rows) if kind == NOISY else 0):
        expected = f"one for each of {len(rows)} rows" if kind == NOISY else f"none for {kind}"
        raise ParameterError("seed", f"expected {expected}, got {len(noise)}")
    temperatures = [_checked(index, temperature) for index, temperature in enumerate(temperatures)]
    backend = backend or pick("auto")
    if kind in _SPARSE or noise or backend.softmax is None:
        return _row_by_row(rows, temperatures, kind, noise)
    values = None if kind == "logsumexp" else _empty(rows)
    status, place, log_z, entropy = backend.softmax(rows.logits, temperatures, kind == "log_softmax", values)
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


def _empty(rows: DenseRows) -> torch.Tensor:
    dtype = torch.float64 if rows.logits.dtype == torch.float64 else torch.float32
    return torch.full((len(rows), rows.vocab_size), torch.nan, dtype=dtype)


def _row_by_row(rows: DenseRows, temperatures: list[float], kind: str, noise: Sequence[Noise]) -> SoftmaxRows:
    values = None if kind == "logsumexp" else _empty(rows)
    log_z = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    entropy = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    faults: list[RowFault] = []
    for index, temperature in enumerate(temperatures):
        try:
            row = rows.row(index).double()
        except BadRow as bad:
            faults.append(RowFault(index, bad.code, bad.kind, bad.detail))
            continue
        if noise:
            row += torch.from_numpy(gumbel_noise(noise[index], rows.vocab_size))
        own, log_z[index], entropy[index] = _row(row, temperature, kind)
        if values is not None:
            values[index] = own
    return SoftmaxRows(values, log_z, entropy, faults)


def _row(row: torch.Tensor, temperature: float, kind: str) -> tuple[torch.Tensor, float, float]:
    """Return values, log Z and entropy of a row [V] float64."""
    largest = row.max()
    deltas = (row - largest) / temperature
    if kind in _SPARSE:
        sparse = _SPARSE[kind](deltas.numpy())
        return torch.from_numpy(sparse), torch.nan, entropy_of(sparse)
    masses = torch.exp(deltas)
    total = _sum(masses)
    log_sum = torch.log(total)
    entropy = (log_sum - _sum(masses * deltas.clamp(min=-1e6)) / total).clamp(min=0.0)
    values = deltas - log_sum if kind == "log_softmax" else torch.exp(deltas - log_sum)
    return values, float(largest / temperature + log_sum), float(entropy)


def _sum(values: torch.Tensor) -> torch.Tensor:
    """Sum in fixed chunks: the bits do not depend on torch's thread count."""
    whole = len(values) // _CHUNK * _CHUNK
    parts = torch.cat([values[:whole].view(-1, _CHUNK).sum(1), values[whole:].sum().view(1)])
    return parts.sum()
