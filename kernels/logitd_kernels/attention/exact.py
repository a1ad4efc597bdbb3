"""Exact attention in O(L · dv) memory: an online softmax over tiles of queries by keys."""

from dataclasses import dataclass, replace

import torch

from logitd_kernels.attention.call import Attended, Call
from logitd_kernels.attention.finite import attend_finite
from logitd_kernels.attention.fused import fused
from logitd_kernels.attention.online import Online, accumulator, blank, with_sinks
from logitd_kernels.attention.parts import (
    KeyTile,
    Known,
    batch_row,
    key_tiles,
    largest,
    masked,
    overflows,
)


@dataclass(frozen=True)
class Tile:
    """How large a piece of the score matrix is held at once: `queries` rows, the heads of a group included, by `keys`.

    KV heads are taken together where their pieces are smaller. The default is half a mebibyte of float32, which stays
    in the second-level cache together with its keys and values.
    """

    queries: int = 256
    keys: int = 512


DEFAULT_TILE = Tile()


@torch.no_grad()
def exact(call: Call, *, statistics: bool = True, tile: Tile = DEFAULT_TILE) -> Attended:
    """Attend exactly, without ever holding [Lq, Lk] scores.

    Tiles that no query sees are skipped, so causality halves the work and a window makes it O(L · W). Scores, sums and
    output are float32 whatever the input, float64 for float64 and where scores or sums of values might pass 1e38; a
    batch row has the same bits alone and in any batch.

    What is not finite makes NaN of what sees it, as in `reference`; keys and values that a query does not see are not
    read for it.

    Args:
        call: what to attend.
        statistics: whether to find entropy and max_prob; without them torch's fused operator serves where it is equal.
        tile: how much is held at once; it changes the answer by rounding alone.
    Returns:
        The output in the dtype of q. Without a visible key: output 0, LSE −inf, entropy 0, max_prob 0.
    Source: Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022 (FlashAttention), arXiv:2205.14135.
    """
    attended = None if statistics else fused(call)
    if attended is None:
        attended = _by_row(call, statistics, tile)
    if call.sink_logits is not None:
        attended = with_sinks(attended, call.sink_logits)
    return replace(attended, output=attended.output.to(call.q.dtype))


def _by_row(call: Call, statistics: bool, tile: Tile) -> Attended:
    """Attend one batch row after the other, so that how it is done depends on the row alone."""
    whole = blank(call, accumulator(call.q.dtype), statistics)
    for index in range(call.batch):
        row = batch_row(call, index)
        part = None if statistics else fused(row)
        for into, found in _pairs(whole, part or _row(row, statistics, tile)):
            into[index, :, : row.queries] = found[0]
    return whole


def _row(row: Call, statistics: bool, tile: Tile) -> Attended:
    """Attend one batch row, what is not finite kept out of the arithmetic."""
    if all(largest(tensor) < torch.inf for tensor in (row.q, row.k, row.v)):
        return _finite_row(row, statistics, tile)
    return attend_finite(row, statistics, lambda clean, statistics: _finite_row(clean, statistics, tile))


def _finite_row(row: Call, statistics: bool, tile: Tile) -> Attended:
    """Attend one batch row; in float64 where float32 might not hold its scores, for −inf hides a key, or its sums."""
    if overflows(row, row.q, row.k, row.v):
        row = replace(row, q=row.q.double(), k=row.k.double(), v=row.v.double())
    dtype = accumulator(row.q.dtype)
    whole = blank(row, dtype, statistics)
    size, known = max(1, tile.queries // row.group), Known()
    for start in range(0, row.queries, size):
        queries = slice(start, min(start + size, row.queries))
        tiles = key_tiles(row, queries, tile.keys, dtype, known)
        scores = row.group * (queries.stop - start) * min(tile.keys, max(1, row.keys))  # of a KV head
        together = max(1, tile.queries * tile.keys // scores)
        for first in range(0, row.k.shape[1] if tiles else 0, together):
            kv_heads = slice(first, first + together)
            part = _tile_row(row, kv_heads, queries, tiles, statistics)
            for into, found in _pairs(whole, part):
                _grouped(into, row)[kv_heads, :, queries] = found
    return whole


def _tile_row(row: Call, kv_heads: slice, queries: slice, tiles: list[KeyTile], statistics: bool) -> Attended:
    """Attend some queries of some KV heads: the heads of a group are further rows beside the same keys."""
    dtype = accumulator(row.q.dtype)
    q = _grouped(row.q, row)[kv_heads, :, queries].to(dtype)  # [heads, group, R, d]
    q = q * (row.scaling if row.softcap is None else row.scaling / row.softcap)
    online = Online((*q.shape[:3], row.v.shape[3]), dtype, statistics)
    for tile in tiles:
        scores = torch.bmm(q.flatten(1, 2), row.k[0, kv_heads, tile.keys].to(dtype).mT).view(*q.shape[:3], -1)
        if row.softcap is not None:
            scores.tanh_().mul_(row.softcap)
        shown = masked(row, kv_heads, queries, tile, dtype)
        online.add(scores, row.v[0, kv_heads, tile.keys].to(dtype), shown)
    return online.finish()


def _grouped(tensor: torch.Tensor, row: Call) -> torch.Tensor:
    """View [1, Hq, ...] as [Hkv, group, ...]."""
    return tensor[0].view(row.k.shape[1], row.group, *tensor.shape[2:])


def _pairs(whole: Attended, part: Attended) -> list[tuple[torch.Tensor, torch.Tensor]]:
    names = ("output", "lse", "entropy", "max_prob")
    pairs = ((getattr(whole, name), getattr(part, name)) for name in names)
    return [(into, found) for into, found in pairs if into is not None]
