"""What a row of logits is before any temperature."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts of one row.

    Attributes:
        vocab_size: V.
        finite: how many logits are not −inf, at least 1.
        largest: M.
        smallest: of the finite ones.
        at_largest: how many logits equal M.
        spacing: between neighbouring numbers of the row's dtype at M: what that dtype cannot tell apart.
    """

    vocab_size: int
    finite: int
    largest: float
    smallest: float
    at_largest: int
    spacing: float

    @classmethod
    def of(cls, row: torch.Tensor, dtype: torch.dtype) -> "Survey":
        """Survey a checked row, [V] float32 or float64, that was sent as `dtype`."""
        smallest, largest = row.aminmax()
        finite = len(row)
        if smallest == -torch.inf:
            unmasked = row[row > -torch.inf]
            finite, smallest = len(unmasked), unmasked.min()
        sent = largest.abs().to(dtype)
        below = torch.nextafter(sent, torch.zeros_like(sent))
        return cls(
            vocab_size=len(row),
            finite=finite,
            largest=float(largest),
            smallest=float(smallest),
            at_largest=int((row == largest).sum()),
            spacing=float(sent.double() - below.double()),
        )

    @property
    def is_level(self) -> bool:
        """Whether all finite logits are equal, so that no temperature changes anything."""
        return self.at_largest == self.finite
