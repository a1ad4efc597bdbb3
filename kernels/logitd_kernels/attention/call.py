"""One attention call: queries, keys and values, and which keys a query sees. Checked once, shared by every method.

Layout is [batch, heads, length, dim] throughout. Query head h reads KV head h // (Hq / Hkv): the order of
`repeat_interleave`.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from logitd_kernels.attention.checks import (
    check_lengths,
    check_mask,
    check_numbers,
    check_places,
    check_sink_logits,
    check_tensors,
)
from logitd_kernels.errors import NonFiniteTensor

Align = Literal["bottom_right", "top_left"]


@dataclass(frozen=True)
class Visible:
    """Which keys a query sees; the conditions are joined by AND.

    Query i stands at position p = i + (n − Lq) with `bottom_right` alignment, where n is how many keys its sequence has
    (`lengths`, else Lk), or p = i with `top_left`. Where lengths are given and Lq = Lk, queries are padded like
    keys: p = i, and a query at or past its length sees nothing.

    Attributes:
        causal: key j is seen iff j ≤ p.
        align: where the first query stands when Lq ≠ Lk.
        window: W ≥ 1 keys including the query's own: j > p − W, and without `causal` also j < p + W; None for all.
        sinks: the first so many keys are seen whatever the window says.
        lengths: [B] int64, keys at or past it are padding; None for none.
        mask: broadcastable to [B, Hq, Lq, Lk]: bool (True is seen) or a float bias added to the scaled, capped score
            (−inf is not seen); None for none.
    """

    causal: bool = False
    align: Align = "bottom_right"
    window: int | None = None
    sinks: int = 0
    lengths: torch.Tensor | None = None
    mask: torch.Tensor | None = None

    @property
    def structured(self) -> bool:
        """Whether causality and lengths say it all: what a linear state can represent."""
        return self.window is None and self.mask is None


@dataclass(frozen=True)
class Call:
    """A checked attention call.

    Args:
        q: [B, Hq, Lq, d] float32, float16, bfloat16 or float64, any strides; k and v have the same dtype.
        k: [B, Hkv, Lk, d], Hq a multiple of Hkv.
        v: [B, Hkv, Lk, dv].
        visible: which keys a query sees.
        scale: of q·k; None is 1/√d, 0 makes all weights equal.
        softcap: cap · tanh(score / cap) before any bias; None for none.
        sink_logits: [Hq] a logit that takes part in the normaliser without a value; None for none.
    Raises:
        ShapeError, DtypeError, ParameterError: naming the tensor or parameter.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    visible: Visible = field(default_factory=Visible)
    scale: float | None = None
    softcap: float | None = None
    sink_logits: torch.Tensor | None = None

    def __post_init__(self) -> None:
        check_tensors(self.q, self.k, self.v)
        check_numbers(self.scale, self.softcap)
        check_sink_logits(self.sink_logits, self.heads)
        check_places(self.visible.align, self.visible.window, self.visible.sinks)
        check_lengths(self.visible.lengths, self.batch, self.keys)
        check_mask(self.visible.mask, (self.batch, self.heads, self.queries, self.keys))

    @property
    def batch(self) -> int:
        """B."""
        return self.q.shape[0]

    @property
    def heads(self) -> int:
        """Hq."""
        return self.q.shape[1]

    @property
    def group(self) -> int:
        """How many query heads share a KV head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def queries(self) -> int:
        """Lq."""
        return self.q.shape[2]

    @property
    def keys(self) -> int:
        """Lk."""
        return self.k.shape[2]

    @property
    def scaling(self) -> float:
        """The factor of q·k."""
        return 1 / math.sqrt(self.q.shape[3]) if self.scale is None else self.scale

    def offsets(self) -> torch.Tensor:
        """Return position minus index of the queries of each batch row: [B] int64."""
        if self.visible.align == "top_left":
            return torch.zeros(self.batch, dtype=torch.int64)
        lengths = self.lengths()
        padded_queries = self.visible.lengths is not None and self.queries == self.keys
        return torch.zeros_like(lengths) if padded_queries else lengths - self.queries

    def lengths(self) -> torch.Tensor:
        """Return how many keys each batch row has: [B] int64."""
        lengths = self.visible.lengths
        return torch.full((self.batch,), self.keys) if lengths is None else lengths.to(torch.int64)

    def seen(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Return whether some queries see some keys, mask aside.

        Args:
            rows: [R] int64, indices of queries.
            columns: [C] int64, indices of keys.
        Returns:
            [B, 1, R, C] bool.
        """
        visible, lengths = self.visible, self.lengths()[:, None, None]
        position = self.offsets()[:, None, None] + rows[None, :, None]
        key = columns[None, None, :]
        seen = (key < lengths).expand(-1, len(rows), -1)
        if visible.lengths is not None and self.queries == self.keys:
            seen = seen & (rows[None, :, None] < lengths)
        if visible.causal:
            seen = seen & (key <= position)
        if visible.window is not None:
            window = min(visible.window, self.keys + self.queries)  # as good as none: more would wrap around int64
            near = (key > position - window) & (key < position + window)
            seen = seen & (near | (key < min(visible.sinks, self.keys)))
        return seen[:, None]

    def bias(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor | None:
        """Return the mask for some queries and keys as what is added to scores: [≤B, ≤Hq, R, C], None for no mask."""
        mask = self.visible.mask
        if mask is None:
            return None
        mask = mask.expand(*mask.shape[:2], self.queries, self.keys)[:, :, rows[:, None], columns]
        if mask.dtype == torch.bool:
            return torch.zeros(mask.shape).masked_fill_(~mask, -math.inf)
        return mask

    def check_finite(self) -> None:
        """Refuse NaN and ±inf in what may be read: all but padding, which `lengths` leaves out.

        Raises:
            NonFiniteTensor: naming the tensor and the index of its first such value.
        """
        lengths = self.visible.lengths
        for name, tensor in (("q", self.q), ("k", self.k), ("v", self.v)):
            bad = ~torch.isfinite(tensor)
            if lengths is not None and tensor.shape[2] == self.keys:
                bad &= (torch.arange(self.keys) < lengths[:, None])[:, None, :, None]
            if bad.any():
                index = [int(one) for one in bad.nonzero()[0]]
                raise NonFiniteTensor(name, index, float(tensor[tuple(index)]))

    def select(self, heads: slice | torch.Tensor) -> "Call":
        """Return the call of some query heads alone, each with a KV head of its own."""
        index = torch.arange(self.heads)[heads]
        mask, sinks = self.visible.mask, self.sink_logits
        if mask is not None and mask.shape[1] > 1:
            mask = mask[:, index]
        return replace(
            self,
            q=self.q[:, index],
            k=self.k[:, index // self.group],
            v=self.v[:, index // self.group],
            visible=replace(self.visible, mask=mask),
            sink_logits=None if sinks is None else sinks[index],
        )


@dataclass(frozen=True)
class Attended:
    """What attention gives.

    Attributes:
        output: [B, Hq, Lq, dv], the dtype of q; 0 for a query that sees no key.
        lse: [B, Hq, Lq] float32 (float64 for float64 input), log Σ e^score over the keys seen, −inf for none. A sink
            logit is no key.
        entropy: [B, Hq, Lq] −Σ w log w over the keys' weights, in nats, 0 where no key is seen; beside a sink logit
            the weights sum to less than 1. None where a method has none.
        max_prob: [B, Hq, Lq], the largest weight, 0 where no key is seen; None where a method has none.
    """

    output: torch.Tensor
    lse: torch.Tensor
    entropy: torch.Tensor | None = None
    max_prob: torch.Tensor | None = None


@dataclass(frozen=True)
class Options:
    """What approximate methods can be told; each reads what concerns it.

    Attributes:
        rank: of the quadratic part of a moment state.
        feature_dim: features a head, all told; None is 4 · d.
        seed: of random features, audited rows and their interval; the same seed gives the same bits.
        orthogonal: draw random projections in orthogonal blocks.
        chunk: keys that a causal pass takes at once; the output depends on it by rounding alone.
    """

    rank: int = 12
    feature_dim: int | None = None
    seed: int = 0
    orthogonal: bool = True
    chunk: int = 128


@dataclass(frozen=True)
class Approximate:
    """What an approximate method gives.

    Attributes:
        output: [B, Hq, Lq, dv], the dtype of q; 0 for a query that sees no key.
        nonpositive_rows: [B, Hq] int64, queries whose normaliser was not positive, answered with 0.
        state_bytes: of what a head keeps in place of its keys and values, a head of one sequence.
        cost: multiply-adds over those of exact attention on the same call, Lq · Lk · (d + dv) a head.
    """

    output: torch.Tensor
    nonpositive_rows: torch.Tensor
    state_bytes: int
    cost: float
