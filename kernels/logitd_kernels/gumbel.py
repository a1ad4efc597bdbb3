"""Standard Gumbel noise, one number a token: a pure function of seed, stream, step and token id."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logitd_kernels.head import Floats
from logitd_kernels.philox import PURPOSE_GUMBEL, bits53

_ALL = (1 << 53) - 1
_BLOCK = 1 << 13  # tokens whose words stay in the cache


@dataclass(frozen=True)
class Noise:
    """What the noise of one row is keyed by: seed in [0, 2^64), stream and step in [0, 2^32)."""

    seed: int
    stream: int = 0
    step: int = 0


def gumbel_noise(noise: Noise, vocab_size: int) -> Floats:
    """Return g = −ln(−ln u) for each token id, [V] float64, between −3.63 and 37.43.

    u = (b + ½)/2^53, b the 53 bits of Philox with counter (step, stream, token, PURPOSE_GUMBEL): in (0, 1), and as fine
    near 1 as near 0. Above ½, where float64 cannot hold u, −ln u is −log1p(u − 1), and 1 − u is the same formula with
    all bits of b flipped. Equal keys give equal noise, whatever the row, the batch and the number of threads.

    Source: Jang, Gu and Poole 2016, arXiv:1611.01144, §2.
    """
    tokens = np.arange(vocab_size, dtype=np.uint64)
    return np.concatenate([_noise_of(noise, some) for some in np.split(tokens, range(_BLOCK, vocab_size, _BLOCK))])


def _noise_of(noise: Noise, tokens: NDArray[np.uint64]) -> Floats:
    bits = bits53(noise.seed, noise.stream, noise.step, tokens, PURPOSE_GUMBEL)
    is_upper = bits > _ALL >> 1
    nearer = (np.where(is_upper, bits ^ _ALL, bits) + 0.5) / 2.0**53  # the smaller of u and 1 − u, exact
    return -np.log(np.where(is_upper, -np.log1p(-nearer), -np.log(nearer)))
