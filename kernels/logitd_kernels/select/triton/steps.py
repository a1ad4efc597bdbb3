"""The order of the cuts, their targets, and what a row answers: shared by the two selection kernels."""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

ANSWERS = tl.constexpr(11)  # status, place, token, its logit, its rank, m, d, energy, kept count, mass and energy
PENDING = tl.constexpr(4.0)  # the status of a row that is left to the search
TOP_K, TOP_P, DRAW, DONE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)


@triton.jit
def min_p_gap(numbers_ptr):
    """Return T·ln(min_p), −inf for none."""
    return tl.load(numbers_ptr + 1)


@triton.jit
def first_step(numbers_ptr, count):
    """Return the first active step when `count` tokens are left."""
    top_k = tl.load(numbers_ptr + 3).to(tl.int64)
    return tl.where((top_k > 0) & (top_k < count), TOP_K, tl.where(tl.load(numbers_ptr + 2) < 1, TOP_P, DRAW))


@triton.jit
def next_step(numbers_ptr, step):
    """Return the next active step."""
    top_p_next = (step == TOP_K) & (tl.load(numbers_ptr + 2) < 1)
    return tl.where(top_p_next, TOP_P, tl.where(step == DRAW, DONE, DRAW))


@triton.jit
def target(numbers_ptr, step, mass, u):
    """Return the smallest running weight that a step cuts at: k tokens, mass ≥ top_p · mass kept, mass > u · mass kept.

    It never exceeds the mass kept, so rounding never leads outside the kept prefix.
    """
    kept = mass.to(tl.float64)
    top_p = tl.load(numbers_ptr + 2)
    share = tl.where(step == TOP_P, tl.ceil(top_p * kept), tl.floor(u * kept) + 1).to(tl.int64)
    top_k = tl.load(numbers_ptr + 3).to(tl.int64)
    return tl.where(step == TOP_K, top_k, tl.maximum(tl.minimum(share, mass), 1))


@triton.jit
def report(answers_ptr, value, rank, kept, scale):
    """Store what a row drew, as a logit and a rank from 1 among its equals, and what it kept."""
    tl.store(answers_ptr, 0.0)
    tl.store(answers_ptr + 3, value)
    tl.store(answers_ptr + 4, rank.to(tl.float64))
    tl.store(answers_ptr + 8, kept[0].to(tl.float64))
    tl.store(answers_ptr + 9, kept[1].to(tl.float64) / scale)
    tl.store(answers_ptr + 10, kept[2].to(tl.float64) / scale)
