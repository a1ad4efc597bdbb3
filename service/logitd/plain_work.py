"""What most requests want computed: rows as they lie in the body, all with the same plain parameters."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from logitd_kernels import RowFault, RowResult
from logitd_kernels.backends import Backend
from logitd_kernels.hot import PlainRows
from logitd_kernels.sampling.plain import sample_plain
from logitd_kernels.sampling.transform import Values

_LIGHT_LOGITS = 1 << 18  # about 0.1 ms


@dataclass(frozen=True, slots=True)
class PlainWork:
    """Rows of one buffer, for a backend that samples them where they lie; see `work.Work`.

    Attributes:
        plain: the rows.
        values: the parameters of each of them, all the same.
        first, last: which of the rows.
    """

    op: ClassVar[str] = "sample"

    plain: PlainRows
    values: Sequence[Values]
    first: int
    last: int

    @property
    def key(self) -> Hashable:
        """V and dtype."""
        return "plain", self.plain.vocab_size, self.plain.dtype

    @property
    def rows(self) -> int:
        """How many."""
        return self.last - self.first

    @property
    def row_bytes(self) -> int:
        """V times the bytes of a logit."""
        return self.plain.vocab_size * self.plain.dtype.itemsize

    @property
    def is_light(self) -> bool:
        """Whether it is a row or two."""
        return self.rows * self.plain.vocab_size <= _LIGHT_LOGITS

    def part(self, start: int, stop: int) -> "PlainWork":
        """Return the work of some rows."""
        return replace(self, values=self.values[start:stop], first=self.first + start, last=self.first + stop)

    def compute(self, backend: Backend) -> list[RowResult | RowFault]:
        """Sample every row."""
        assert backend.plain is not None
        return sample_plain(backend.plain, self.plain, self.values[0], self.first, self.last)
