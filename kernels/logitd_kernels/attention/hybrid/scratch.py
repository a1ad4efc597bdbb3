"""Memory that the heads of a call use one after the other: fresh pages cost more than the sums that are put in them."""

import math

import torch


class Scratch:
    """Named buffers that grow to the largest size asked of them: what one head leaves there the next overwrites."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._held: dict[str, torch.Tensor] = {}

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """Return the buffer of that name, with this shape and unknown content."""
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or len(held) < size:
            held = self._held[name] = torch.empty(size, dtype=self.dtype)
        return held[:size].view(shape)
