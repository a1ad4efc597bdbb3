"""What every stream can do, and what it is told when it is opened."""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from logitd_kernels.attention.call import Options
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError

Flat = dict[str, Any]  # tensors, integers, floats and strings


@dataclass(frozen=True)
class StreamSetting:
    """What a stream attends.

    Attributes:
        method: a name of `registry.STREAMS`.
        heads: Hq, query heads.
        kv_heads: Hkv; query head h reads KV head h // (Hq / Hkv).
        dim, value_dim: d and dv.
        scale: of q·k; None is 1/√d.
        options: of the method.
        modes: a method for each query head, in place of `method`; None for none.

    Raises:
        ParameterError: a number that is none of these.
    """

    method: str
    heads: int
    kv_heads: int
    dim: int
    value_dim: int
    scale: float | None = None
    options: Options = field(default_factory=Options)
    modes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "dim", "value_dim"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ParameterError(name, f"must be an integer of at least 1, got {value!r}")
        if self.heads % self.kv_heads:
            raise ParameterError("heads", f"must be a multiple of the {self.kv_heads} KV heads, got {self.heads}")
        if self.modes is not None and len(self.modes) != self.heads:
            raise ParameterError("modes", f"expected a method for each of {self.heads} heads, got {len(self.modes)}")
        if self.scale is not None and not math.isfinite(self.scale):
            raise ParameterError("scale", f"must be finite, got {self.scale}")

    @property
    def scaling(self) -> float:
        """The factor of q·k."""
        return 1 / math.sqrt(self.dim) if self.scale is None else self.scale

    def check(self, q: torch.Tensor | None, k: torch.Tensor | None, v: torch.Tensor | None) -> None:
        """Refuse tensors of other shapes than the stream's, and of logits beyond float32; None is not looked at.

        Raises:
            ShapeError, NonFiniteTensor: naming the tensor.
        """
        self.check_shapes(q, k, v)
        for name, tensor in (("q", q), ("k", k)):  # keys stand in for queries that did not come along
            if tensor is not None and not torch.isfinite(scaled := tensor.float() * self.scaling).all():
                index = [int(one) for one in (~torch.isfinite(scaled)).nonzero()[0]]
                raise NonFiniteTensor(name, index, float(scaled[tuple(index)]))

    def check_shapes(self, q: torch.Tensor | None, k: torch.Tensor | None, v: torch.Tensor | None) -> None:
        """Refuse tensors of other shapes than the stream's; None is not looked at.

        Raises:
            ShapeError: naming the tensor.
        """
        wanted = {
            "q": (q, self.heads, self.dim),
            "k": (k, self.kv_heads, self.dim),
            "v": (v, self.kv_heads, self.value_dim),
        }
        for name, (tensor, heads, dim) in wanted.items():
            if tensor is not None and (tensor.ndim != 3 or (tensor.shape[0], tensor.shape[2]) != (heads, dim)):
                raise ShapeError(name, f"expected [{heads}, tokens, {dim}], got {list(tensor.shape)}")
        if k is not None and v is not None and k.shape[1] != v.shape[1]:
            raise ShapeError("v", f"expected {k.shape[1]} tokens as k has, got {v.shape[1]}")
        if k is not None and q is not None and q.shape[1] > k.shape[1]:
            raise ShapeError("q", f"expected at most the {k.shape[1]} tokens that k has, got {q.shape[1]}")

    def per_query_head(self, x: torch.Tensor) -> torch.Tensor:
        """Return [Hq, T, d] of [Hkv, T, d]: each KV head once for every query head that reads it."""
        group = self.heads // self.kv_heads
        return x if group == 1 else x.repeat_interleave(group, 0)


def unprefixed(prefix: str, flat: Flat) -> Flat:
    """Return what stands under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}


class Stream(Protocol):
    """One sequence. All arithmetic is float32; pieces of any size give the same answers within rounding.

    Attributes:
        setting: what it was opened with.
    """

    setting: StreamSetting

    @property
    def tokens(self) -> int:
        """How many it has taken in."""

    @property
    def bytes(self) -> int:
        """What it keeps, and the room that it may need however long the sequence; `growth` comes on top."""

    @property
    def early_error(self) -> torch.Tensor | None:
        """How wrong second order alone is on the first 256 tokens, [Hq]: all that a stream can know of its error.

        None before them, without their queries, and for methods that are not of second order.
        """

    def growth(self, tokens: int) -> int:
        """Return how many bytes more it would keep after so many more tokens."""

    def calibrates(self, tokens: int) -> bool:
        """Whether so many more tokens make it fit coordinates to its first ones."""

    def attend(self, q: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
        """Take in T tokens; the last R of them may ask, each of what came up to itself.

        Args:
            q: [Hq, R, d], R ≤ T, or None to take in alone.
            k: [Hkv, T, d].
            v: [Hkv, T, dv].
        Returns:
            [Hq, R, dv] float32, None without q.
        Raises:
            ShapeError: naming the tensor.
            NonFiniteTensor: a query or key times the scale is beyond float32.
            ParameterError: no coordinates can be fitted to the first tokens. The stream is then as it was.
        """

    def read(self, q: torch.Tensor) -> torch.Tensor:
        """Ask of everything so far, [Hq, R, d] -> [Hq, R, dv] float32; zeros before the first token."""

    def export(self) -> Flat:
        """Return everything that continuing needs; `registry.restore_stream` continues on the same bits."""
