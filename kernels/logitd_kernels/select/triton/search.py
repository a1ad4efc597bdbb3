"""Cuts that lie deep in a row: a crossing is bracketed by sweeps over the row, and the bracket gathered into a window.

One program a row; a row that `selection` has answered costs a look at its status.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from logitd_kernels.select.triton.crossing import (
    HIGHEST_KEY,
    LOWEST_KEY,
    PIVOTS,
    key_value,
    order_key,
    place_pivots,
    shrink,
)
from logitd_kernels.select.triton.draw import uniform
from logitd_kernels.select.triton.row import (
    LIGHTEST,
    LOWEST,
    NUMBERS,
    TILE,
    list_chunks,
    load_tile,
    mass_scale,
    open_row,
    sums_above,
    weigh,
)
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


@triton.jit
def search_kernel(
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
    """Answer one row if it is pending; grid and arguments as for `select_kernel`."""
    program = tl.program_id(0).to(tl.int64)  # program * stride may pass 2**31
    numbers_ptr += program * NUMBERS
    answers_ptr += program * ANSWERS
    if tl.load(answers_ptr) == PENDING:
        inverse_t = tl.load(numbers_ptr)
        m, d, _, _, finite, _, _ = merge_segments(sums_ptr, places_ptr, program, inverse_t, n_cols, segments, SEGMENTS)
        row = open_row(x_ptr, mask_ptr, tokens_ptr, maxima_ptr, list_ptr, program, x_stride, n_cols, n_words, n_chunks)
        scale = mass_scale(d)
        scaling = (m, inverse_t, scale)
        light = tl.maximum(m + LIGHTEST / inverse_t, LOWEST)
        gap = min_p_gap(numbers_ptr)
        whole = gap == float("-inf")
        kept = sums_above(row, scaling, tl.where(whole, light, m + gap), CHUNK, CHUNKS)
        if whole:
            kept = (finite.to(tl.int64), kept[1], kept[2])
            tl.store(answers_ptr + 6, kept[1].to(tl.float64) / scale)
        value, rank, kept, done = _cut_deep(
            row, numbers_ptr, window_ptr + program * WINDOW, scaling, kept, uniform(tokens_ptr, program), finite, light,
            CHUNK, CHUNKS, WINDOW,
        )  # fmt: skip
        if done:
            report(answers_ptr, value, rank, kept, scale)


@triton.jit
def _cut_deep(
    row, numbers_ptr, window_ptr, scaling, kept, u, finite, light,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Return the drawn logit, its rank among its equals, what is kept, and whether the cuts came to an end.

    A cut takes a turn in a window that its crossing lies in, and a turn before to gather one, so six are enough; only
    logits that change while they are read could take more.
    """
    value = scaling[0]
    rank = tl.zeros([], tl.int64)
    above = (rank, rank, rank)
    values = tl.full([WINDOW], float("-inf"), tl.float64)
    size = tl.zeros([], tl.int32)
    step = first_step(numbers_ptr, kept[0])
    turns = 6
    while (step != DONE) & (turns > 0):
        turns -= 1
        by_count = step == TOP_K
        need = target(numbers_ptr, step, kept[1], u)
        weights = weigh_window(values, size, scaling, WINDOW)
        short = need - tl.where(by_count, above[0], above[1])
        if (short > 0) & (short <= tl.sum(tl.where(by_count, weights[0], weights[1]))):
            ties_all = tl.load(numbers_ptr + 4) != 0
            value, rank, _, prefix = cut(values, weights, above, scaling, need, by_count, ties_all)
            if step != DRAW:
                kept = prefix
            step = next_step(numbers_ptr, step)
        else:
            low = order_key(tl.where(by_count, LOWEST, light))
            low, high = _narrow(row, scaling, need, by_count, low, finite, CHUNK, CHUNKS, WINDOW)
            above = sums_above(row, scaling, key_value(high), CHUNK, CHUNKS)
            values, size = gather_window(row, window_ptr, key_value(low), key_value(high), CHUNK, CHUNKS, WINDOW)
    return value, rank, kept, step == DONE


@triton.jit
def _narrow(row, scaling, need, by_count, low, finite, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, WINDOW: tl.constexpr):
    """Return a bracket [low, high) of keys around a crossing, with WINDOW tokens at most or of one value.

    A round is one sweep over the chunks that reach into the bracket or lie above it.

    Args:
        need: int64, in tokens when `by_count`, else in mass.
        low: the key of a logit such that those not below it have that much.
        finite: how many logits the row has.
    """
    high = order_key(scaling[0]) + 1
    to_low = finite
    to_high = tl.zeros([], tl.int32)
    while (to_low - to_high > WINDOW) & (low + 1 < high):
        pivots = place_pivots(low, high)
        listed = list_chunks(row, key_value(low), CHUNKS)
        weights = tl.zeros([PIVOTS, TILE], tl.int64)
        counts = tl.zeros([PIVOTS, TILE], tl.int32)
        smallest = tl.full([TILE], HIGHEST_KEY, tl.int64)
        largest = tl.full([TILE], LOWEST_KEY, tl.int64)
        for first in range(0, listed, TILE // CHUNK):
            x, _ = load_tile(row, first, listed, CHUNK)
            mass, _ = weigh(x, scaling)
            keys = order_key(x)
            reach = keys[None, :] >= pivots[:, None]  # [PIVOTS, TILE]
            weights += tl.where(reach, tl.where(by_count, 1, mass)[None, :], 0)
            counts += reach.to(tl.int32)
            inside = (keys >= low) & (keys < high)
            smallest = tl.where(inside, tl.minimum(smallest, keys), smallest)
            largest = tl.where(inside, tl.maximum(largest, keys), largest)
        reached = tl.sum(weights, axis=1) >= need
        count = tl.sum(counts, axis=1)
        to_low = tl.min(tl.where(reached, count, to_low))
        to_high = tl.max(tl.where(reached, to_high, count))
        low, high = shrink(low, high, pivots, reached)
        low = tl.maximum(low, tl.min(smallest))
        high = tl.minimum(high, tl.max(largest) + 1)
    return low, high
