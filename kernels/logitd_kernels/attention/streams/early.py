"""The first tokens of a stream, kept until coordinates are fitted to them."""

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.moment.calibrate import CAUSAL_SAMPLE, Basis, fit_basis
from logitd_kernels.attention.moment.read import quotient
from logitd_kernels.attention.moment.state import MomentState
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

    def error(self, basis: Basis, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor | None:
        """Measure second order alone on the early tokens, every query on all of their keys.

        Returns:
            ‖answer − exact‖ / ‖exact‖ of each head, [Hq] float64; None without queries.
        """
        if not self.held.shape[1]:
            return None
        keys, values = keys[:, :COUNT], values[:, :COUNT]
        state = MomentState(basis, values.shape[2])
        state.append(keys, values)
        reading = state.read(self.held)
        found = torch.empty_like(reading.numerator)
        quotient(reading.numerator, reading.denominator, found)
        right = exact(Call(self.held[None], keys[None], values[None], scale=1.0), statistics=False).output[0].double()
        wrong = found.double() - right
        error: torch.Tensor = torch.linalg.norm(wrong, dim=(1, 2)) / torch.linalg.norm(right, dim=(1, 2))
        return error
