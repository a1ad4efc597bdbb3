"""What the client returns of a verification."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logitd.client.results import RowError
from logitd.errors import RowFailed


@dataclass(frozen=True, eq=False)
class VerifyResult:
    """The answer to one request to verify draft tokens.

    Attributes:
        tokens: [B, n + 1] int64: the accepted draft tokens and one more, padded with −1; −1 alone where the row failed.
        accepted: [B] int32, how many draft tokens were accepted; −1 where the row failed.
        acceptance: [B, n] float64, what each draft token's uniform was held against: min(1, p/q), or h of block
            verification; NaN behind the row's draft.
        seed: [B] uint64, 0 where the row failed; drawn by the service where none was given.
        errors: why each row failed, None for one that did not.
        backend: what computed it.
        effective: the parameters as the service understood them, one object or one for each row.
        effective_draft: those of `draft_logits`; None without them.
        seconds: where the service spent its time, by stage.
    """

    tokens: NDArray[np.int64]
    accepted: NDArray[np.int32]
    acceptance: NDArray[np.float64]
    seed: NDArray[np.uint64]
    errors: list[RowError | None]
    backend: str
    effective: dict[str, Any] | list[dict[str, Any]]
    effective_draft: dict[str, Any] | list[dict[str, Any]] | None
    seconds: dict[str, float]

    def emitted(self, row: int) -> list[int]:
        """Return what a row is to append: its tokens without the padding.

        Raises:
            RowFailed: it has none.
        """
        error = self.errors[row]
        if error is not None:
            raise RowFailed(error.row, error.code, error.detail)
        tokens: list[int] = self.tokens[row, : self.accepted[row] + 1].tolist()
        return tokens

    def raise_for_rows(self) -> Self:
        """Return the result itself if every row has an answer.

        Raises:
            RowFailed: for the first row that has none.
        """
        for row, error in enumerate(self.errors):
            if error is not None:
                self.emitted(row)
        return self
