"""The tokens of a row that are known, where only its head was sent."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from logitd_kernels.head import Floats, Ids


@dataclass(frozen=True)
class Known:
    """The tokens of a row that are known.

    Attributes:
        ids, logits: [N] int64 and float64, in the total order, after the edits.
        certain: how many of them no other token can precede.
        tail_count: how many others there may be.
        counted: whether there are that many.
        sufficient: gives a head size in which the first so many would be certain, None where none would do.
    """

    ids: Ids
    logits: Floats
    certain: int
    tail_count: int
    counted: bool
    sufficient: Callable[[int], int | None]

    def without(self, count: int) -> "Known":
        """Return what is known without the first `count` tokens."""
        return replace(
            self,
            ids=self.ids[count:],
            logits=self.logits[count:],
            certain=self.certain - count,
            sufficient=lambda more: self.sufficient(more + count),
        )

    def replaced(self, logits: Floats) -> "Known":
        """Return the same tokens with other logits."""
        order = np.lexsort((self.ids, -logits))  # two that rounding made equal may change places
        return replace(self, ids=self.ids[order], logits=logits[order])
