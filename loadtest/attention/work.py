"""The calls that are measured: 4 heads of dim 64, float32, as many queries as keys, normal with small norms.

How long a call takes does not depend on the numbers in it. With small norms every method is nearly right, so that a
wrong one shows.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from logitd_kernels.attention import Call, Visible

HEADS, DIM = 4, 64
LENGTHS = tuple(1 << power for power in range(8, 16))  # 256 to 32,768
_SPREAD = 0.25  # of queries and keys: logits of standard deviation 1/16 · 8


@dataclass(frozen=True)
class Work:
    """A call of so many queries on as many keys."""

    length: int
    causal: bool

    @property
    def call(self) -> Call:
        """The call; both masks have the same tensors."""
        return Call(*tensors(self.length), Visible(causal=self.causal))

    def ending(self, queries: int) -> Call:
        """Return the call of the last so many queries in float64: they stand where they stood."""
        q, k, v = (tensor.double() for tensor in (self.call.q[:, :, -queries:], self.call.k, self.call.v))
        return replace(self.call, q=q, k=k, v=v)


@lru_cache(maxsize=len(LENGTHS))
def tensors(length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return q, k and v, [1, 4, L, 64] each, the same in every run; nothing else is left of making them."""
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.empty(1, HEADS, length, DIM).normal_(generator=generator) for _ in range(3))
    return q.mul_(_SPREAD), k.mul_(_SPREAD), v
