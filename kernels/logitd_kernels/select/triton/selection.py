"""min_p, top_k, top_p and the draw from the top of each row, one program a row.

Every kept set is a prefix of the total order (logit descending, token id ascending), so it is three integers: how many
tokens it holds, their mass and their energy. The top of a row, a few hundred tokens, is gathered into a window, which
answers nearly every cut of a peaked row. A row with a cut that lies deeper, or whose target is a share of d so close to
a boundary that the rounding of d decides, is left to `search`.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from logitd_kernels.select.triton.crossing import crossing, key_value, order_key
from logitd_kernels.select.triton.draw import uniform
from logitd_kernels.select.triton.row import LOWEST, NUMBERS, mass_scale, open_row, sums_above
from logitd_kernels.select.triton.statistics import merge_segments
from logitd_kernels.select.triton.steps import (
    ANSWERS,
    DONE,
    DRAW,
    PENDING,
    TOP_K,
    first_step,
    min_p_gap,
    next_step,
    report,
    target,
)
from logitd_kernels.select.triton.window import cut, gather_window, weigh_window

ROUNDING = tl.constexpr(2.0**-17)  # more than float32 sums can put d off by, relatively


@triton.jit
def select_kernel(
    x_ptr,
    mask_ptr,
    tokens_ptr,
    numbers_ptr,
    sums_ptr,
    places_ptr,
    maxima_ptr,
    list_ptr,
    window_ptr,
    answers_ptr,
    x_stride,
    n_cols,
    n_words,
    n_chunks,
    segments,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    SEGMENTS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Answer one row, or mark it pending; grid (rows,).

    Args:
        x_ptr, mask_ptr, tokens_ptr, numbers_ptr: as `statistics_kernel` read them.
        sums_ptr, places_ptr, maxima_ptr: as it left them.
        list_ptr: [rows, n_chunks] int32, scratch.
        window_ptr: [rows, WINDOW] float64, scratch.
        answers_ptr: [rows, ANSWERS] float64, out: status 0 OK, 1 NaN, 2 +inf, 3 all masked; place −1 for nowhere.
    """
    program = tl.program_id(0).to(tl.int64)  # program * stride may pass 2**31
    numbers_ptr += program * NUMBERS
    answers_ptr += program * ANSWERS
    inverse_t = tl.load(numbers_ptr)
    m, d, energy, largest, finite, bad_at, nan_at = merge_segments(
        sums_ptr, places_ptr, program, inverse_t, n_cols, segments, SEGMENTS
    )
    bad = bad_at < n_cols
    status = tl.where(bad, tl.where(nan_at < n_cols, 1, 2), tl.where(finite == 0, 3, 0))
    tl.store(answers_ptr, status.to(tl.float64))
    tl.store(answers_ptr + 1, tl.where(bad, bad_at, -1).to(tl.float64))
    tl.store(answers_ptr + 2, largest.to(tl.float64))  # what a greedy row draws
    tl.store(answers_ptr + 4, 0.0)
    tl.store(answers_ptr + 5, m)
    tl.store(answers_ptr + 6, d)
    tl.store(answers_ptr + 7, energy)
    if (status == 0) & (tl.load(numbers_ptr + 5) == 0):
        row = open_row(x_ptr, mask_ptr, tokens_ptr, maxima_ptr, list_ptr, program, x_stride, n_cols, n_words, n_chunks)
        scale = mass_scale(d)
        kept = (finite.to(tl.int64), (d * scale).to(tl.int64), (energy * scale).to(tl.int64))
        value, rank, kept, sure = _cut_top(
            row, numbers_ptr, window_ptr + program * WINDOW, (m, inverse_t, scale), kept, uniform(tokens_ptr, program),
            CHUNK, CHUNKS, WINDOW,
        )  # fmt: skip
        if sure:
            report(answers_ptr, value, rank, kept, scale)
        else:
            tl.store(answers_ptr, PENDING)


@triton.jit
def _cut_top(
    row, numbers_ptr, window_ptr, scaling, kept, u, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, WINDOW: tl.constexpr
):
    """Return the drawn logit, its rank among its equals, what is kept, and whether all that is certain."""
    floor = _top_floor(row, numbers_ptr, kept[0], CHUNKS, WINDOW)
    gap = min_p_gap(numbers_ptr)
    rough = gap == float("-inf")
    if rough == 0:
        kept = sums_above(row, scaling, scaling[0] + gap, CHUNK, CHUNKS)
    values, size = gather_window(row, window_ptr, floor, float("inf"), CHUNK, CHUNKS, WINDOW)
    weights = weigh_window(values, size, scaling, WINDOW)
    none = tl.zeros([], tl.int64)
    value = scaling[0]
    rank = none
    sure = size <= WINDOW
    step = first_step(numbers_ptr, kept[0])
    while sure & (step != DONE):
        by_count = step == TOP_K
        need = target(numbers_ptr, step, kept[1], u)
        sure = need <= tl.sum(tl.where(by_count, weights[0], weights[1]))
        if sure:
            ties_all = tl.load(numbers_ptr + 4) != 0
            value, rank, margin, prefix = cut(values, weights, (none, none, none), scaling, need, by_count, ties_all)
            sure = by_count | (rough == 0) | (margin > (need.to(tl.float64) * ROUNDING).to(tl.int64))
            if step != DRAW:
                kept = prefix
                rough = False
            step = next_step(numbers_ptr, step)
    return value, rank, kept, sure


@triton.jit
def _top_floor(row, numbers_ptr, finite, CHUNKS: tl.constexpr, WINDOW: tl.constexpr):
    """Return a logit that the top_k largest reach, and WINDOW/4 at least, where the maxima of chunks promise it.

    As many chunks as its rank among their maxima reach it, and each holds a few such tokens or many.
    """
    _, _, maxima_ptr, _, _, n_chunks = row
    floor = tl.full([], LOWEST, tl.float64)
    if finite > WINDOW:
        chunk = tl.arange(0, CHUNKS)
        maxima = tl.load(maxima_ptr + chunk, chunk < n_chunks, float("-inf"))
        some = (maxima > float("-inf")).to(tl.int64)
        top_k = tl.load(numbers_ptr + 3).to(tl.int64)
        rank = tl.minimum(tl.maximum(top_k, WINDOW // 4), (tl.sum(some) + 1) // 2)
        floor = key_value(crossing(order_key(maxima), some, rank))
    return floor
