"""The first tokens of a stream, kept until coordinates are fitted to them."""

import torch

from logitd_kernels.attention.moment.calibrate import CAUSAL_SAMPLE, Basis, fit_basis
from logitd_kernels.attention.streams.stream import StreamSetting

COUNT = CAUSAL_SAMPLE


class EarlyQueries:
    """The queries that came with the first `COUNT` tokens, times the scale.

    Attributes:
        held: [Hq, n, d] float32.
    """

    def __init__(self, setting: StreamSetting, held: torch.Tensor | None = None) -> None:
        self._setting = setting
        self.held = torch.zeros(setting.heads, 0, setting.dim) if held is None else held

    def add(self, q: torch.Tensor, position: int) -> None:
        """Keep queries [Hq, n, d], the first of which stands at `position`, as far as they are early."""
        early = q[:, : max(0, COUNT - position)].float() * self._setting.scaling
        if early.shape[1]:
            self.held = torch.cat([self.held, early], 1)

    def basis(self, keys: torch.Tensor) -> Basis:
        """Fit coordinates to the early queries and keys [Hq, n, d]; without queries, keys stand in for them."""
        keys = keys[:, :COUNT]
        queries = self.held if self.held.shape[1] else keys * self._setting.scaling
        return fit_basis(queries, keys, self._setting.options.rank)
