"""Targets to score as work for the engine, which takes its rows in parts where they are large."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from logitd.rows_work import DenseWork
from logitd_kernels import DenseRows
from logitd_kernels.backends import Backend
from logitd_kernels.sampling.order import Order
from logitd_kernels.sampling.transform import Values
from logitd_kernels.score import Answer, score


@dataclass(frozen=True)
class ScoreWork(DenseWork):
    """Rows with a target each; the parameters are those of `logitd_kernels.score`."""

    dense: DenseRows
    targets: torch.Tensor
    params: Sequence[Values]
    order: Order
    gradient: bool
    first: int = 0
    op: ClassVar[str] = "score"

    def part(self, start: int, stop: int) -> "ScoreWork":
        """Return the work of some rows; they know their places."""
        if (start, stop) == (0, self.rows):
            return self
        return replace(
            self,
            dense=self.dense.part(start, stop),
            targets=self.targets[start:stop],
            params=self.params[start:stop],
            first=self.first + start,
        )

    def compute(self, backend: Backend) -> list[Answer]:
        """Score every row.

        Raises:
            ParameterError: its `row` counted in the request.
        """
        asked: dict[str, Any] = {"backend": backend, "order": self.order, "gradient": self.gradient}
        return self.placed(lambda: score(self.dense, self.targets, self.params, **asked))
