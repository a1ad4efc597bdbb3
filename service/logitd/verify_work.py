"""Verification of draft tokens as work for the engine, which takes its rows in parts where they are large."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from logitd.rows_work import RowsWork
from logitd_kernels import RowFault
from logitd_kernels.backends import Backend
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.transform import Values
from logitd_kernels.sampling.verify import Verified, verify


@dataclass(frozen=True)
class VerifyWork(RowsWork):
    """Rows of draft tokens to verify; the parameters are those of `logitd_kernels.sampling.verify`."""

    speculation: Speculation
    params: Sequence[Values]
    draft_params: Sequence[Values] | None
    method: str
    order: Order = DEFAULT
    first: int = 0
    op: ClassVar[str] = "verify"

    @property
    def rows(self) -> int:
        """B."""
        return len(self.speculation)

    @property
    def row_bytes(self) -> int:
        """Of the logits and probabilities of a row."""
        return self.speculation.row_bytes

    def part(self, start: int, stop: int) -> "VerifyWork":
        """Return the work of some rows; they know their places."""
        if (start, stop) == (0, self.rows):
            return self
        drafts = None if self.draft_params is None else self.draft_params[start:stop]
        return replace(
            self,
            speculation=self.speculation.part(start, stop),
            params=self.params[start:stop],
            draft_params=drafts,
            first=self.first + start,
        )

    def compute(self, backend: Backend) -> list[Verified | RowFault]:
        """Verify every row.

        Raises:
            ParameterError: its `row` counted in the request.
        """
        asked: dict[str, Any] = {"method": self.method, "backend": backend, "order": self.order}
        return self.placed(lambda: verify(self.speculation, self.params, self.draft_params, **asked))
