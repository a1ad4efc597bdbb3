"""The parts of an exported state, each asked for by its exact form before anything is built from it."""

import torch

from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.attention.streams.stream import Flat, StreamSetting
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError, told

MAX_TOKENS = 1 << 53  # integers beyond it are not exact everywhere that reads JSON


class Given:
    """What an export has, ticked off as it is asked for. States are copies: an export may be a view of a whole request.

    Args:
        flat: the export.
    """

    def __init__(self, flat: Flat) -> None:
        self._flat = flat
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._flat

    def tensor(
        self, name: str, shape: tuple[int | None, ...], dtype: torch.dtype = torch.float32, finite: bool = True
    ) -> torch.Tensor:
        """Return a tensor of a shape, None for any length.

        Raises:
            ShapeError, NonFiniteTensor: naming it.
        """
        value = self._part(name)
        wanted = f"expected {dtype} {['any' if length is None else length for length in shape]}"
        if not isinstance(value, torch.Tensor):
            raise ShapeError(name, f"{wanted}, got a {type(value).__name__}")
        lengths = zip(shape, value.shape, strict=False)
        if value.dtype != dtype or value.ndim != len(shape) or any(want not in (None, own) for want, own in lengths):
            raise ShapeError(name, f"{wanted}, got {value.dtype} {list(value.shape)}")
        if finite and not torch.isfinite(value).all():
            index = [int(one) for one in (~torch.isfinite(value)).nonzero()[0]]
            raise NonFiniteTensor(name, index, float(value[tuple(index)]))
        return value

    def tokens(self, name: str = "tokens") -> int:
        """Return a count of tokens.

        Raises:
            ParameterError: no integer in [0, 2^53).
        """
        value = self._part(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_TOKENS:
            raise ParameterError(name, f"must be an integer from 0 to 2^53 - 1, got {told(value)}")
        return value

    def same(self, name: str, want: str | float) -> None:
        """Refuse a number or string that is not the one that follows from the setting.

        Raises:
            ParameterError: naming it.
        """
        value = self._part(name)
        if type(value) is not type(want) or value != want:
            raise ParameterError(name, f"must be {told(want)} as the setting has it, got {told(value)}")

    def early_error(self, heads: int) -> torch.Tensor | None:
        """Return how wrong second order was on the first tokens, [heads] float64; None where that was not measured."""
        if "early_error" not in self:
            return None
        error = self.tensor("early_error", (heads,), torch.float64, finite=False)  # of zero values it has no bound
        if (error < 0).any():
            raise ParameterError("early_error", "must not be negative")
        return error.clone()

    def early(self, setting: StreamSetting, most: int) -> torch.Tensor:
        """Return the first queries, [heads, n, dim], n ≤ most."""
        early = self.tensor("early", (setting.heads, None, setting.dim))
        if early.shape[1] > most:
            raise ShapeError("early", f"expected at most {most} queries, got {early.shape[1]}")
        return early.clone()

    def moment_state(self, setting: StreamSetting) -> MomentState:
        """Return the moment state under `state.`."""
        rank, dim = min(setting.options.rank, setting.dim), setting.dim
        shapes: dict[str, tuple[int, ...]] = {
            "basis.key_centre": (dim,),
            "basis.query_centre": (dim,),
            "basis.key_map": (rank, dim),
            "basis.query_map": (rank, dim),
            "basis.spectrum": (dim,),
            "log_scale": (),
            "sums": (1 + dim + rank * (rank + 1) // 2, setting.value_dim + 1),
        }
        parts = {name: self.tensor(f"state.{name}", (setting.heads, *shape)).clone() for name, shape in shapes.items()}
        tokens = self.tensor("state.tokens", (), torch.int64)
        if not 0 < int(tokens) < MAX_TOKENS:
            raise ParameterError("state.tokens", f"must be from 1 to 2^53 - 1, got {int(tokens)}")
        return MomentState.restore({**parts, "tokens": tokens})

    def finish(self) -> None:
        """Refuse what nobody asked for.

        Raises:
            ParameterError: naming the first.
        """
        for name in self._flat:
            if name not in self._asked:
                raise ParameterError(name[:60], "is no part of such a state")

    def _part(self, name: str) -> object:
        self._asked.add(name)
        if name not in self._flat:
            raise ParameterError(name, "missing from the exported state")
        return self._flat[name]
