"""One row inside a kernel: its parameters, its tokens a tile at a time, their weights, sums over them.

Weights are integers. A mass e^((x − m)/T), computed in float64, is held in units of 1/scale, scale a power of two near
2^56/d, and so is the energy (m − x)/T · mass. Integer sums have one value whatever their order, equal logits weigh
exactly alike, and rounding each mass to its unit moves a sum of 10^5 of them by about 10^-15 of the row's mass.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

NUMBERS = tl.constexpr(6)  # float64: 1/T, T·ln(min_p) or −inf, top_p, top_k, ties_all, greedy
TOKENS = tl.constexpr(4)  # int64: row of the batch, seed, stream, step
TILE = tl.constexpr(1024)
LOWEST = tl.constexpr(-1.7976931348623157e308)
FARTHEST = tl.constexpr(-1e6)  # a finite (x − m)/T without mass: 0 · −inf is NaN
LIGHTEST = tl.constexpr(-40.0)  # an (x − m)/T whose mass rounds to no unit: e^−40 · 2^56 < ½


@triton.jit
def open_row(x_ptr, mask_ptr, tokens_ptr, maxima_ptr, list_ptr, program, x_stride, n_cols, n_words, n_chunks):
    """Return what the functions below know a row by."""
    if mask_ptr is not None:
        mask_ptr += program * n_words
    x_ptr += tl.load(tokens_ptr + program * TOKENS) * x_stride
    return x_ptr, mask_ptr, maxima_ptr + program * n_chunks, list_ptr + program * n_chunks, n_cols, n_chunks


@triton.jit
def allowed(mask_ptr, cols, within):
    """Return which tokens a packed bitmask allows, least significant bit first."""
    words = tl.load(mask_ptr + cols // 32, within, 0)
    return ((words >> (cols % 32)) & 1) != 0


@triton.jit
def mass_scale(d):
    """Return the power of two that takes the masses of a row, d in sum, to integers below 2^58 in sum."""
    exponent = ((d.to(tl.int64, bitcast=True) >> 52) & 0x7FF) - 1023
    return ((1023 + 56 - exponent) << 52).to(tl.float64, bitcast=True)


@triton.jit
def weigh(x, scaling):
    """Return integer masses and energies of float64 logits; −inf weighs nothing."""
    m, inverse_t, scale = scaling
    delta = (x - m) * inverse_t
    e = tl.exp(delta)
    mass = (e * scale + 0.5).to(tl.int64)
    energy = (-e * tl.maximum(delta, FARTHEST) * scale + 0.5).to(tl.int64)
    return mass, energy


@triton.jit
def list_chunks(row, floor, CHUNKS: tl.constexpr):
    """List, ascending, the chunks that hold a logit ≥ floor; return how many there are."""
    _, _, maxima_ptr, list_ptr, _, n_chunks = row
    chunk = tl.arange(0, CHUNKS)
    wanted = (tl.load(maxima_ptr + chunk, chunk < n_chunks, float("-inf")) >= floor).to(tl.int32)
    tl.debug_barrier()  # every thread has done with the list before
    tl.store(list_ptr + tl.cumsum(wanted) - 1, chunk, wanted != 0)
    tl.debug_barrier()  # and sees this one
    return tl.sum(wanted)


@triton.jit
def load_tile(row, first, listed, CHUNK: tl.constexpr):
    """Return float64 logits and token ids [TILE] of the listed chunks from the `first` on.

    A logit is −inf where it is masked, past the end of the row or of the list.
    """
    x_ptr, mask_ptr, _, list_ptr, n_cols, _ = row
    lane = tl.arange(0, TILE)
    place = first + lane // CHUNK
    cols = tl.load(list_ptr + place, place < listed, 0) * CHUNK + lane % CHUNK
    within = (place < listed) & (cols < n_cols)
    if mask_ptr is not None:
        within = within & allowed(mask_ptr, cols, within)
    return tl.load(x_ptr + cols, within, float("-inf")).to(tl.float64), cols


@triton.jit
def sums_above(row, scaling, floor, CHUNK: tl.constexpr, CHUNKS: tl.constexpr):
    """Return count, mass and energy, int64, of every token with logit ≥ floor."""
    listed = list_chunks(row, floor, CHUNKS)
    count = tl.zeros([TILE], tl.int32)
    mass = tl.zeros([TILE], tl.int64)
    energy = tl.zeros([TILE], tl.int64)
    for first in range(0, listed, TILE // CHUNK):
        x, _ = load_tile(row, first, listed, CHUNK)
        above = x >= floor
        mass_x, energy_x = weigh(x, scaling)
        count += above.to(tl.int32)
        mass += tl.where(above, mass_x, 0)
        energy += tl.where(above, energy_x, 0)
    return tl.sum(count).to(tl.int64), tl.sum(mass), tl.sum(energy)
