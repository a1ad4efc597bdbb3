"""Distributions of rows as work for the engine, which takes them in parts where they are large."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from logitd_kernels import DenseRows, RowFault, RowResult, softmax
from logitd_kernels.backends import Backend
from logitd_kernels.gumbel import Noise
from logitd_kernels.sampling.transform import Values
from logitd_kernels.softmax import SoftmaxRows


@dataclass(frozen=True)
class SoftmaxWork:
    """Rows to turn into distributions; the parameters are those of `logitd_kernels.softmax`."""

    dense: DenseRows
    temperatures: Sequence[float]
    kind: str
    noise: Sequence[Noise] = ()
    key: Hashable = None
    op: ClassVar[str] = "softmax"
    values: ClassVar[Sequence[Values]] = ()
    is_light: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        """B."""
        return len(self.dense)

    @property
    def row_bytes(self) -> int:
        """V times the bytes of a logit."""
        return self.dense.vocab_size * self.dense.logits.element_size()

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

    def sampled(self, answers: Sequence[Any]) -> Sequence[RowResult | RowFault]:
        """Return nothing: no row is sampled."""
        return ()


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
