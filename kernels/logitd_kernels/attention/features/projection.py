"""Random projections: Gaussian rows that are a function of a seed alone, in orthogonal blocks by default."""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.errors import ParameterError


@lru_cache(maxsize=32)
def projection(count: int, dim: int, seed: int, orthogonal: bool) -> torch.Tensor:
    """Return rows w ~ N(0, I), the same for queries and keys, for every head, and in every call: never redrawn.

    Orthogonal rows come in blocks of d, each row Gaussian by itself; fewer rows are the first of more.

    Returns:
        [count, dim] float32, not to be written to. Drawn by Philox, orthogonalised in float64.
    Raises:
        ParameterError: a seed that is not an integer from 0 to 2^64 − 1.
    Source: Yu et al. 2016, "Orthogonal Random Features", arXiv:1610.09072.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise ParameterError("seed", f"must be an integer from 0 to 2^64 - 1, got {seed!r}")
    generator = np.random.Generator(np.random.Philox(key=seed))
    if not orthogonal:
        return torch.from_numpy(generator.standard_normal((count, dim))).float()
    blocks = [_block(generator, dim) for _ in range(-(-count // dim))]
    return torch.from_numpy(np.concatenate(blocks)[:count]).float()


def _block(generator: np.random.Generator, dim: int) -> NDArray[np.float64]:
    """Draw d orthogonal rows, turned uniformly and as long as Gaussian rows are."""
    q, r = np.linalg.qr(generator.standard_normal((dim, dim)))
    q *= np.sign(np.diagonal(r))  # without it a QR is not uniform over rotations (Mezzadri 2007, §4)
    lengths = np.linalg.norm(generator.standard_normal((dim, dim)), axis=1)
    block: NDArray[np.float64] = q.T * lengths[:, None]
    return block
