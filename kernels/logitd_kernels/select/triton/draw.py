"""The draw: a row's uniform, and the id of the token that it drew."""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from logitd_kernels.select.triton.row import TILE, TOKENS, list_chunks, load_tile, open_row
from logitd_kernels.select.triton.steps import ANSWERS


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
def token_kernel(
    x_ptr,
    mask_ptr,
    tokens_ptr,
    maxima_ptr,
    list_ptr,
    answers_ptr,
    x_stride,
    n_cols,
    n_words,
    n_chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Find the id of the token that a row drew: the rank-th of its equals by ascending id; grid (rows,)."""
    program = tl.program_id(0).to(tl.int64)  # program * stride may pass 2**31
    answers_ptr += program * ANSWERS
    value = tl.load(answers_ptr + 3)
    rank = tl.load(answers_ptr + 4)
    if (tl.load(answers_ptr) == 0) & (rank > 0):
        row = open_row(x_ptr, mask_ptr, tokens_ptr, maxima_ptr, list_ptr, program, x_stride, n_cols, n_words, n_chunks)
        listed = list_chunks(row, value, CHUNKS)
        seen = tl.zeros([], tl.int32)
        token = tl.full([], -1, tl.int32)
        for first in range(0, listed, TILE // CHUNK):
            x, cols = load_tile(row, first, listed, CHUNK)
            equal = (x == value).to(tl.int32)
            here = (equal != 0) & (seen + tl.cumsum(equal) == rank)
            token = tl.maximum(token, tl.max(tl.where(here, cols, -1)))
            seen += tl.sum(equal)
        tl.store(answers_ptr + 2, token.to(tl.float64))
