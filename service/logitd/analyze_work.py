"""The Boltzmann view as work for the engine, which takes its rows in parts where they are large."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from logitd.rows_work import DenseWork
from logitd_kernels import DenseRows, RowFault
from logitd_kernels.backends import Backend
from logitd_kernels.sampling.transform import Values
from logitd_kernels.thermo import RowAnalysis, analyze


@dataclass(frozen=True)
class AnalyzeWork(DenseWork):
    """Rows to analyse; what is asked is as in `logitd_kernels.thermo.analyze`."""

    dense: DenseRows
    temperatures: Sequence[float]
    entropy: float | None = None
    mass: float | None = None
    params: Values | None = None
    first: int = 0
    op: ClassVar[str] = "analyze"

    @property
    def row_bytes(self) -> int:
        """What the passes over a row read, one for each temperature."""
        return super().row_bytes * len(self.temperatures)

    def part(self, start: int, stop: int) -> "AnalyzeWork":
        """Return the work of some rows; they know their places."""
        if (start, stop) == (0, self.rows):
            return self
        return replace(self, dense=self.dense.part(start, stop), first=self.first + start)

    def compute(self, backend: Backend) -> list[RowAnalysis | RowFault]:
        """Analyse every row.

        Raises:
            ParameterError: a parameter that does not fit the vocabulary.
        """
        asked: dict[str, Any] = {"entropy": self.entropy, "mass": self.mass, "params": self.params, "backend": backend}
        return self.placed(lambda: analyze(self.dense, self.temperatures, **asked))
