"""The draw inside a kernel: the row's uniform, and the id of a token among its equals."""

import triton
import triton.language as tl

from logitd_kernels.select.triton.row import TILE, TOKENS, list_chunks, load_tile


@triton.jit
def uniform(tokens_ptr, row):
    """Return the row's 53-bit uniform in (0, 1], as `philox.uniform` defines it, for draw 0 and purpose 0.

    Philox4x32-10 in 32-bit integers: Salmon, Moraes, Dror and Shaw 2011 (Random123).
    """
    seed = tl.load(tokens_ptr + row * TOKENS + 1).to(tl.uint64, bitcast=True)
    stream = tl.load(tokens_ptr + row * TOKENS + 2).to(tl.uint32)
    step = tl.load(tokens_ptr + row * TOKENS + 3).to(tl.uint32)
    zero = tl.zeros([], tl.uint32)
    x0, x1, _, _ = tl.philox(seed, step, stream, zero, zero)
    bits = ((x0 >> 5).to(tl.int64) << 26) + (x1 >> 6).to(tl.int64)
    return (bits.to(tl.float64) + 0.5) / 9007199254740992.0


@triton.jit
def token_at(row, value, rank, CHUNK: tl.constexpr, CHUNKS: tl.constexpr):
    """Return the id of the rank-th (from 1) of the tokens whose logit is `value`, by ascending id."""
    listed = list_chunks(row, value, CHUNKS)
    seen = tl.zeros([], tl.int64)
    token = tl.full([], -1, tl.int32)
    for first in range(0, listed, TILE // CHUNK):
        x, cols = load_tile(row, first, listed, CHUNK)
        equal = x == value
        place = seen + tl.cumsum(equal.to(tl.int32))
        token = tl.maximum(token, tl.max(tl.where(equal & (place == rank), cols, -1)))
        seen += tl.sum(equal.to(tl.int32))
    return token
