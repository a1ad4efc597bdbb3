"""Philox4x32-10, the counter-based generator behind every draw.

Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3" (Random123). A draw is a pure
function of its key and counter, so any row can be replayed alone, in any order, in any language.
"""

import numpy as np
from numpy.typing import NDArray

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF
_HALF, _LOW = np.uint64(32), np.uint64(_WORD)

PURPOSE_SAMPLE = 0
PURPOSE_ACCEPT, PURPOSE_RESIDUAL, PURPOSE_BONUS = 1, 2, 3  # of speculative verification
PURPOSE_XTC = 4
PURPOSE_GUMBEL = 16


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four 32-bit output words of ten Philox rounds over four counter words and two key words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _WORD, (p0 >> 32) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + _W0) & _WORD, (k1 + _W1) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, stream: int = 0, step: int = 0, draw: int = 0, purpose: int = PURPOSE_SAMPLE) -> float:
    """Return the 53-bit uniform in (0, 1] that decides one draw.

    u = ((x0 >> 5)·2^26 + (x1 >> 6) + ½) / 2^53 in float64, x the Philox words of key (seed low, seed high) and counter
    (step, stream, draw, purpose).

    Args:
        seed: 0 to 2^64 − 1.
        stream, step, draw, purpose: 0 to 2^32 − 1 each.
    """
    x0, x1, _, _ = philox4x32((step, stream, draw, purpose), (seed & _WORD, seed >> 32))
    return float(((x0 >> 5) << 26) + (x1 >> 6) + 0.5) / 9007199254740992.0


def bits53(seed: int, stream: int, step: int, draws: NDArray[np.uint64], purpose: int) -> NDArray[np.uint64]:
    """Return the 53 bits (x0 >> 5)·2^26 + (x1 >> 6) of many draws at once, of which `uniform` makes a number.

    Args:
        draws: [N], the counter word of each; the other words as for `uniform`.
    """
    c0, c1, c2, c3 = np.full_like(draws, step), np.full_like(draws, stream), draws, np.full_like(draws, purpose)
    k0, k1 = seed & _WORD, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(_M0), c2 * np.uint64(_M1)
        c0, c1 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW
        c2, c3 = (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _W0) & _WORD, (k1 + _W1) & _WORD
    return ((c0 >> np.uint64(5)) << np.uint64(26)) + (c1 >> np.uint64(6))
