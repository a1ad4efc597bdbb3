"""A window: a run of the total order gathered out of the row, with the sums of what precedes it.

A window has room for WINDOW logits, in no order. One with more, `size`, is of use only if they are all equal: then the
last slot stands for those that did not fit.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

from logitd_kernels.select.triton.crossing import crossing, key_value, order_key
from logitd_kernels.select.triton.row import TILE, list_chunks, load_tile, weigh


@triton.jit
def gather_window(row, window_ptr, low, high, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, WINDOW: tl.constexpr):
    """Gather the logits in [low, high).

    Returns:
        [WINDOW] float64, −inf in empty slots; and how many there are in the row.
    """
    listed = list_chunks(row, low, CHUNKS)
    size = tl.zeros([], tl.int32)
    for first in range(0, listed, TILE // CHUNK):
        x, _ = load_tile(row, first, listed, CHUNK)
        member = ((x >= low) & (x < high)).to(tl.int32)
        slot = size + tl.cumsum(member) - 1
        tl.store(window_ptr + slot, x, (member != 0) & (slot < WINDOW))
        size += tl.sum(member)
    tl.debug_barrier()  # the window is written; list_chunks waits until it has been read
    slot = tl.arange(0, WINDOW)
    return tl.load(window_ptr + slot, slot < size, float("-inf")), size


@triton.jit
def weigh_window(values, size, scaling, WINDOW: tl.constexpr):
    """Return counts, masses and energies, [WINDOW] int64 each."""
    slot = tl.arange(0, WINDOW)
    times = tl.where(slot == WINDOW - 1, tl.maximum(size - WINDOW + 1, 1), 1).to(tl.int64)
    mass, energy = weigh(values, scaling)
    return tl.where(slot < size, times, 0), mass * times, energy * times


@triton.jit
def cut(values, weights, above, scaling, need, by_count, ties_all):
    """Cut where the running weight of a window reaches `need`, which lies in it: equal logits enter by ascending id.

    Args:
        values: [WINDOW] float64.
        weights: counts, masses and energies, as `weigh_window` gives them.
        above: count, mass and energy of what precedes the window.
        need: int64, in tokens when `by_count`, else in mass.
        ties_all: whether a cut by count keeps all tokens equal to its last.
    Returns:
        The logit of the last token kept; its rank, from 1, among its equals; by how much `need` may change without
        moving it; count, mass and energy of what is kept.
    """
    counts, masses, energies = weights
    weight = tl.where(by_count, counts, masses)
    start = tl.where(by_count, above[0], above[1])
    value = key_value(crossing(order_key(values), weight, need - start))
    higher = values > value
    before = start + tl.sum(tl.where(higher, weight, 0))
    mass, energy = weigh(value, scaling)
    each = tl.where(by_count, 1, mass)
    ties = tl.sum(tl.where(values == value, counts, 0))
    rank = tl.minimum((need - before + each - 1) // each, ties)
    through = before + rank * each
    margin = tl.minimum(need - (through - each) - 1, through - need)
    rank = tl.where(by_count & ties_all, ties, rank)
    count = above[0] + tl.sum(tl.where(higher, counts, 0)) + rank
    kept_mass = above[1] + tl.sum(tl.where(higher, masses, 0)) + rank * mass
    kept_energy = above[2] + tl.sum(tl.where(higher, energies, 0)) + rank * energy
    return value, rank, margin, (count, kept_mass, kept_energy)
