"""Distributions of rows as work for the engine, which takes them in parts where they are large."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from logitd.rows_work import DenseWork
from logitd_kernels import DenseRows, softmax
from logitd_kernels.backends import Backend
from logitd_kernels.gumbel import Noise
from logitd_kernels.softmax import SoftmaxRows


@dataclass(frozen=True)
class SoftmaxWork(DenseWork):
    """Rows to turn into distributions; the parameters are those of `logitd_kernels.softmax`."""

    dense: DenseRows
    temperatures: Sequence[float]
    kind: str
    noise: Sequence[Noise] = ()
    op: ClassVar[str] = "softmax"

    def part(self, start: int, stop: int) -> "SoftmaxWork":
        """Return the work of some rows."""
        if (start, stop) == (0, self.rows):
            return self
        return replace(
            self,
            dense=self.dense.part(start, stop),
            temperatures=self.temperatures[start:stop],
            noise=self.noise[start:stop],
        )

    def compute(self, backend: Backend) -> list[SoftmaxRows | None]:
        """Compute every row; the first has the answer of all of them, the others None."""
        told = softmax(self.dense, list(self.temperatures), self.kind, backend, self.noise)
        return [told, *[None] * (self.rows - 1)]


def together(answers: Sequence[SoftmaxRows | None]) -> SoftmaxRows:
    """Put the answers of all parts together."""
    parts = {place: part for place, part in enumerate(answers) if part is not None}
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts.values() if part.values is not None]
    return SoftmaxRows(
        values=torch.cat(values) if values else None,
        log_z=torch.cat([part.log_z for part in parts.values()]),
        entropy=torch.cat([part.entropy for part in parts.values()]),
        faults=[replace(fault, row=fault.row + first) for first, part in parts.items() for fault in part.faults],
    )
