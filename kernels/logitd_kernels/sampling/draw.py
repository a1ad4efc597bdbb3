"""The draw: a quantile of the kept distribution, walked along the total order."""

import math
from collections.abc import Callable

from logitd_kernels import native, philox
from logitd_kernels.head import Prefix, Token
from logitd_kernels.sampling.transform import Values
from logitd_kernels.select.ordered import OrderedRow

uniform: Callable[[int, int, int, int], float] = philox.uniform if native.module is None else native.module.uniform


def draw(row: OrderedRow, kept: Prefix, values: Values, seed: int) -> list[Token]:
    """Draw `n` tokens from the kept prefix by inverse CDF along the total order.

    token = the first whose cumulative mass exceeds u · kept mass, u = uniform(seed, stream, step, draw).
    A pure function of the row, its parameters, seed, stream and step. Rounding never leads outside the kept prefix.
    """
    uniforms = [uniform(seed, values["stream"], values["step"], place) for place in range(values["n"])]
    below = math.nextafter(kept.mass, 0.0)  # u rounds to 1 once in 2^53 draws
    tokens = row.tokens_at([min(u * kept.mass, below) for u in uniforms])
    return [token if token.rank < kept.count else row.head(kept.count).token(kept.count - 1) for token in tokens]
