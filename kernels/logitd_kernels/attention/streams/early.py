"""The first tokens of a stream, kept until coordinates are fitted to them."""

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.moment.calibrate import CAUSAL_SAMPLE, Basis, fit_basis
from logitd_kernels.attention.moment.read import quotient
from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.attention.streams.stream import StreamSetting
from logitd_kernels.errors import ParameterError

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
        """Fit coordinates to the early queries and keys [Hq, n, d]; without queries, keys stand in for them.

        Raises:
            ParameterError: there are none, or none in float32.
        """
        keys = keys[:, :COUNT]
        queries = self.held if self.held.shape[1] else keys * self._setting.scaling
        try:
            basis = fit_basis(queries, keys, self._setting.options.rank)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # missing from the stubs
            raise ParameterError("k", f"no coordinates can be fitted to the first {COUNT} tokens") from None
        if not all(torch.isfinite(tensor).all() for tensor in basis.export().values()):
            raise ParameterError("k", f"coordinates fitted to the first {COUNT} tokens are beyond float32")
        return basis

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


def second_order_bytes(setting: StreamSetting) -> int:
    """Return the bytes of a moment state of all heads, coordinates included."""
    dim, rank = setting.dim, min(setting.options.rank, setting.dim)
    sums = (1 + dim + rank * (rank + 1) // 2) * (setting.value_dim + 1)
    return 4 * setting.heads * (sums + 1 + 3 * dim + 2 * rank * dim)


def early_bytes(setting: StreamSetting) -> int:
    """Return the bytes of as many early queries as may be kept."""
    return 4 * setting.heads * COUNT * setting.dim
