"""The draw: a quantile of the kept distribution, walked along the total order."""

import math
from collections.abc import Callable

import numpy as np

from logitd_kernels import native, philox
from logitd_kernels.head import Floats, Head, Prefix, Token
from logitd_kernels.sampling.transform import Values
from logitd_kernels.select.ordered import OrderedRow

uniform: Callable[[int, int, int, int], float] = philox.uniform if native.module is None else native.module.uniform


def draw(row: OrderedRow, kept: Prefix, values: Values) -> list[Token]:
    """Draw `n` tokens from the kept prefix by inverse CDF along the total order.

    token = the first whose cumulative mass exceeds u · kept mass, u = uniform(seed, stream, step, draw).
    A pure function of the row, its parameters, seed, stream and step. Rounding never leads outside the kept prefix.
    """
    below = math.nextafter(kept.mass, 0.0)  # u rounds to 1 once in 2^53 draws
    tokens = row.tokens_at([min(u * kept.mass, below) for u in _uniforms(values)])
    return [token if token.rank < kept.count else row.head(kept.count).token(kept.count - 1) for token in tokens]


def draw_weighed(head: Head, weights: Floats, values: Values) -> list[Token]:
    """Draw `n` of the first tokens of a head in the same way, by weights [N] ≥ 0 of their own."""
    sums = np.cumsum(weights)
    last = int(np.searchsorted(sums, sums[-1], side="left"))  # the last with any weight
    ranks = np.searchsorted(sums, [u * float(sums[-1]) for u in _uniforms(values)], side="right")
    return [head.token(min(int(rank), last)) for rank in ranks]


def _uniforms(values: Values) -> list[float]:
    return [uniform(values["seed"], values["stream"], values["step"], place) for place in range(values["n"])]
