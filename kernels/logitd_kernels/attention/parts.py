"""A call in parts: batch rows without their padding, and tiles of queries by keys that leave out what nobody sees."""

import math
from dataclasses import dataclass, replace

import torch

from logitd_kernels.attention.call import Call

SCORE_LIMIT = 1e38  # float32 ends at 3.4e38


def batch_row(call: Call, index: int) -> Call:
    """Return the call of one batch row alone, its padding cut off: it has no `lengths`, and its tensors are views.

    Queries that `lengths` makes padding are cut off too, so its Lq may be smaller.
    """
    visible, length = call.visible, int(call.lengths()[index])
    padded_queries = visible.lengths is not None and call.queries == call.keys
    queries = length if padded_queries else call.queries
    mask = visible.mask
    if mask is not None:
        mask = mask[index if mask.shape[0] > 1 else 0][None, :, :queries, :length]
    return replace(
        call,
        q=call.q[index : index + 1, :, :queries],
        k=call.k[index : index + 1, :, :length],
        v=call.v[index : index + 1, :, :length],
        visible=replace(visible, lengths=None, mask=mask),
    )


def overflows(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether float32 might not hold scores of some queries and keys of a call, or a sum of these keys' values.

    Also where there is NaN.

    Args:
        call: whose scale and softcap count.
        q, k, v: parts of its tensors, [..., dim].
    """
    scores = largest(q) * largest(k) * call.q.shape[3] * abs(call.scaling) / min(1.0, call.softcap or 1.0)
    return not (scores < SCORE_LIMIT and largest(v) * call.keys < SCORE_LIMIT)


def largest(tensor: torch.Tensor) -> float:
    """Return the largest magnitude, NaN where there is NaN, 0 where there is nothing."""
    if tensor.numel() == 0:
        return 0.0
    low, high = (float(one) for one in torch.aminmax(tensor))
    return max(-low, high) if low == low else math.nan


@dataclass(frozen=True)
class Shown:
    """What hides keys: `bias` is added to scores, −inf where a key is not seen, and `weight` there 0 and else 1.

    Both are of one float dtype and broadcast to [heads, group, R, C]. The bias alone does not do: a weight is never
    smaller than e^`Online.floor`.
    """

    bias: torch.Tensor
    weight: torch.Tensor

    @classmethod
    def by(cls, bias: torch.Tensor) -> "Shown":
        """Return what a bias shows."""
        return cls(bias, (bias != -torch.inf).to(bias.dtype))


@dataclass(frozen=True)
class KeyTile:
    """Some keys beside a tile of queries, and what hides them; None where the queries see them all."""

    keys: slice
    shown: Shown | None


Known = dict[tuple[int, ...], Shown | None]


def key_tiles(row: Call, queries: slice, size: int, dtype: torch.dtype, known: Known) -> list[KeyTile]:
    """Return the keys that some of these queries see, in tiles of at most `size`; the mask is not looked at.

    Args:
        row: a call of one batch row, without lengths.
        queries: bounds of the tile of queries.
        size: keys in a tile.
        dtype: of the scores.
        known: what other tiles of the row show, added to: along a diagonal it is the same.
    """
    tiles = []
    for low, high in _spans(row, queries):
        for start in range(low, high, size):
            keys = slice(start, min(start + size, high))
            tiles.append(KeyTile(keys, _shown(row, queries, keys, dtype, known)))
    return tiles


def masked(row: Call, kv_heads: slice, queries: slice, tile: KeyTile, dtype: torch.dtype) -> Shown | None:
    """Return what hides a tile's keys from some heads, the mask included."""
    mask = row.visible.mask
    if mask is None:
        return tile.shown
    by_head = mask[0].view(row.k.shape[1], row.group, *mask.shape[2:])[kv_heads] if mask.shape[1] > 1 else mask
    part = by_head[:, :, _within(queries, mask.shape[2]), _within(tile.keys, mask.shape[3])]
    if part.dtype == torch.bool:
        bias = torch.zeros(part.shape, dtype=dtype).masked_fill_(~part, -torch.inf)
    else:
        bias = part.to(dtype)
    return Shown.by(bias if tile.shown is None else bias + tile.shown.bias)


def _within(bounds: slice, size: int) -> slice:
    """Return the bounds in a dim that may be broadcast."""
    return slice(None) if size == 1 else bounds


def _spans(row: Call, queries: slice) -> list[tuple[int, int]]:
    """Return the ranges of keys that some of the queries see: one, or the sinks and the window."""
    visible, offset = row.visible, int(row.offsets()[0])
    high = min(row.keys, queries.stop + offset) if visible.causal else row.keys
    spans = [(0, high)]
    if visible.window is not None:
        sinks = min(visible.sinks, high)
        low = max(0, queries.start + offset - visible.window + 1)
        near = min(high, queries.stop - 1 + offset + visible.window)
        spans = [(0, max(sinks, near))] if low <= sinks else [(0, sinks), (low, near)]
    return [(start, stop) for start, stop in spans if start < stop]


def _shown(row: Call, queries: slice, keys: slice, dtype: torch.dtype, known: Known) -> Shown | None:
    visible = row.visible
    if visible.window is None and (not visible.causal or keys.stop - 1 <= queries.start + int(row.offsets()[0])):
        return None
    sizes = queries.stop - queries.start, keys.stop - keys.start
    place = (keys.start - queries.start, min(keys.start, visible.sinks), *sizes)
    if place not in known:
        seen = row.seen(torch.arange(queries.start, queries.stop), torch.arange(keys.start, keys.stop))[0, 0]
        known[place] = None if seen.all() else Shown(torch.where(seen, 0.0, -torch.inf).to(dtype), seen.to(dtype))
    return known[place]
