"""Targets to score as work for the engine, which takes its rows in parts where they are large."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from logitd_kernels import DenseRows, RowFault, RowResult
from logitd_kernels.backends import Backend
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.order import Order
from logitd_kernels.sampling.transform import Values
from logitd_kernels.score import Answer, score


@dataclass(frozen=True)
class ScoreWork:
    """Rows with a target each; the parameters are those of `logitd_kernels.score`."""

    dense: DenseRows
    targets: torch.Tensor
    params: Sequence[Values]
    order: Order
    gradient: bool
    first: int = 0  # the place of the first row in its request
    key: Hashable = None
    op: ClassVar[str] = "score"
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
        try:
            answers = score(
                self.dense, self.targets, self.params, backend=backend, order=self.order, gradient=self.gradient
            )
        except ParameterError as error:
            row = None if error.row is None else error.row + self.first
            raise ParameterError(error.field, error.message, row) from None
        return [replace(one, row=one.row + self.first) if isinstance(one, RowFault) else one for one in answers]

    def sampled(self, answers: Sequence[Any]) -> Sequence[RowResult | RowFault]:
        """Return nothing: no row is sampled."""
        return ()
