"""Statistics of every row in one read of the batch.

The online normaliser of Milakov and Gimelshein 2018, arXiv:1805.02867, with its m (maximum) and d (Σ e^((x − m)/T)),
and beside them the energy Σ (m − x)/T · e^((x − m)/T), which turns d into an entropy. A row is split into segments of
one size whatever the batch, so that small batches fill the device and a row's sums have the same bits in any batch.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from logitd_kernels.select.triton.row import FARTHEST, LOWEST, NUMBERS, TOKENS, allowed

SUMS = tl.constexpr(3)  # m, d, energy
PLACES = tl.constexpr(4)  # where the maximum is, how many are finite, the first NaN or +inf, the first NaN


@triton.jit
def statistics_kernel(
    x_ptr,
    mask_ptr,
    tokens_ptr,
    numbers_ptr,
    sums_ptr,
    places_ptr,
    maxima_ptr,
    x_stride,
    n_cols,
    n_words,
    n_chunks,
    CHUNK: tl.constexpr,
    SEGMENT: tl.constexpr,
):
    """Reduce one segment of one row; grid (rows, segments).

    float64 logits are reduced in float64, all others in float32, by sums over at most SEGMENT tokens.

    Args:
        x_ptr: logits, float32, bfloat16, float16 or float64.
        mask_ptr: [rows, n_words] int32 or None.
        tokens_ptr, numbers_ptr: parameters of each row, see `row`.
        sums_ptr: [rows, SUMS, segments] float64, out.
        places_ptr: [rows, PLACES, segments] int32, out; n_cols stands for nowhere.
        maxima_ptr: [rows, n_chunks] float64, out: the maximum of every CHUNK tokens.
    """
    wide: tl.constexpr = x_ptr.dtype.element_ty == tl.float64
    dtype: tl.constexpr = tl.float64 if wide else tl.float32
    row = tl.program_id(0).to(tl.int64)  # row * stride may pass 2**31
    segment = tl.program_id(1)
    chunk = segment * (SEGMENT // CHUNK) + tl.arange(0, SEGMENT // CHUNK)  # [chunks]
    cols = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]  # [chunks, CHUNK]
    within = cols < n_cols
    x_row = tl.load(tokens_ptr + row * TOKENS)
    x = tl.load(x_ptr + x_row * x_stride + cols, within, float("-inf")).to(dtype)
    nan = x != x
    bad = nan | (x == float("inf"))
    nan_at = tl.min(tl.where(nan, cols, n_cols))
    bad_at = tl.min(tl.where(bad, cols, n_cols))
    usable = within & ~bad
    if mask_ptr is not None:
        usable = usable & allowed(mask_ptr + row * n_words, cols, within)
    x = tl.where(usable, x, float("-inf"))

    m = tl.max(x)
    shift = tl.where(m == float("-inf"), 0.0, m)  # nothing finite: avoid -inf - -inf
    delta = (x - shift) * tl.load(numbers_ptr + row * NUMBERS).to(dtype)
    e = tl.exp(delta)
    d = tl.sum(e)
    energy = -tl.sum(e * tl.maximum(delta, FARTHEST))

    tl.store(maxima_ptr + row * n_chunks + chunk, tl.max(x, axis=1).to(tl.float64), chunk < n_chunks)
    segments = tl.num_programs(1)
    sums = sums_ptr + row * SUMS * segments + segment
    tl.store(sums, m.to(tl.float64))
    tl.store(sums + segments, d.to(tl.float64))
    tl.store(sums + 2 * segments, energy.to(tl.float64))
    places = places_ptr + row * PLACES * segments + segment
    tl.store(places, tl.min(tl.where(x == m, cols, n_cols)))
    tl.store(places + segments, tl.sum((x > float("-inf")).to(tl.int32)))
    tl.store(places + 2 * segments, bad_at)
    tl.store(places + 3 * segments, nan_at)


@triton.jit
def merge_segments(sums_ptr, places_ptr, row, inverse_t, n_cols, segments, SEGMENTS: tl.constexpr):
    """Merge a row's segments by the online rule, d ← Σ d_i·e^((m_i − m)/T), always in the same order.

    Returns:
        m, d, energy in float64; where the maximum first is, how many logits are finite, the first NaN or +inf and the
        first NaN, in int32.
    """
    segment = tl.arange(0, SEGMENTS)
    there = segment < segments
    sums = sums_ptr + row * SUMS * segments + segment
    m_i = tl.load(sums, there, float("-inf"))
    d_i = tl.load(sums + segments, there, 0.0)
    energy_i = tl.load(sums + 2 * segments, there, 0.0)
    m = tl.max(m_i)
    shift = tl.maximum((tl.maximum(m_i, LOWEST) - tl.maximum(m, LOWEST)) * inverse_t, FARTHEST)
    factor = tl.exp(shift)
    d = tl.sum(factor * d_i)
    energy = tl.sum(factor * (energy_i - shift * d_i))
    places = places_ptr + row * PLACES * segments + segment
    largest = tl.min(tl.where(m_i == m, tl.load(places, there, n_cols), n_cols))
    finite = tl.sum(tl.load(places + segments, there, 0))
    bad_at = tl.min(tl.load(places + 2 * segments, there, n_cols))
    nan_at = tl.min(tl.load(places + 3 * segments, there, n_cols))
    return m, d, energy, largest, finite, bad_at, nan_at
