"""What kinds of work have in common that take rows in parts, are computed alone, and sample nothing."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from logitd_kernels import DenseRows, RowFault, RowResult
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.transform import Values


class RowsWork:
    """Rows of a request; see `work.Work`. `first` is the place of the first of them in it."""

    key: ClassVar[Hashable] = None
    values: ClassVar[Sequence[Values]] = ()
    is_light: ClassVar[bool] = False
    first: int = 0

    def sampled(self, answers: Sequence[Any]) -> Sequence[RowResult | RowFault]:
        """Return nothing: no row is sampled."""
        return ()

    def placed(self, compute: Callable[[], Sequence[Any]]) -> list[Any]:
        """Compute an answer for each row, faults with their place in the request.

        Raises:
            ParameterError: its `row` counted in the request.
        """
        try:
            answers = compute()
        except ParameterError as error:
            row = None if error.row is None else error.row + self.first
            raise ParameterError(error.field, error.message, row) from None
        return [replace(one, row=one.row + self.first) if isinstance(one, RowFault) else one for one in answers]


class DenseWork(RowsWork):
    """Whole rows."""

    dense: DenseRows

    @property
    def rows(self) -> int:
        """B."""
        return len(self.dense)

    @property
    def row_bytes(self) -> int:
        """V times the bytes of a logit."""
        return self.dense.vocab_size * self.dense.logits.element_size()
