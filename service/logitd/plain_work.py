"""What most requests want computed: rows as they lie in the body, all with the same plain parameters."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from logitd_kernels import RowFault, RowResult
from logitd_kernels.backends import Backend
from logitd_kernels.hot import PlainRows
from logitd_kernels.sampling.plain import sample_plain
from logitd_kernels.sampling.transform import Values

LIGHT_LOGITS = 1 << 18  # about 0.1 ms


@dataclass(frozen=True, slots=True)
class PlainWork:
    """Rows of one buffer, for a backend that samples them where they lie; see `work.Work`.

    Attributes:
        plain: the rows.
        values: the parameters of each that is asked for, all the same.
        first: the place of the first of them in the buffer.
    """

    op: ClassVar[str] = "sample"

    plain: PlainRows
    values: Sequence[Values]
    first: int = 0

    @property
    def key(self) -> Hashable:
        """V and dtype."""
        return "plain", self.plain.vocab_size, self.plain.dtype

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.values)

    @property
    def row_bytes(self) -> int:
        """V times the bytes of a logit."""
        return self.plain.vocab_size * self.plain.dtype.itemsize

    @property
    def is_light(self) -> bool:
        """Whether it is a row or two."""
        return self.rows * self.plain.vocab_size <= LIGHT_LOGITS

    def part(self, start: int, stop: int) -> "PlainWork":
        """Return the work of some rows."""
        return replace(self, values=self.values[start:stop], first=self.first + start)

    def compute(self, backend: Backend) -> list[RowResult | RowFault]:
        """Sample every row."""
        assert backend.plain is not None
        return sample_plain(backend.plain, self.plain, self.values[0], self.first, self.first + self.rows)

    def sampled(self, answers: Sequence[Any]) -> Sequence[RowResult | RowFault]:
        """Return the answers."""
        return answers
