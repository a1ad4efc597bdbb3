"""top_n_sigma: keep logits within n standard deviations of the largest."""

import math

import numpy as np

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    with np.errstate(over="ignore", invalid="ignore"):
        below = row.logits_of(kept) - row.max  # so that a large offset takes no digits
        sigma = float(np.std(below))
    return row.above(row.max - values["top_n_sigma"] * sigma) if math.isfinite(sigma) else kept


TOP_N_SIGMA = Cut(
    name="top_n_sigma",
    parameter=Number("top_n_sigma", 0.0, "Keep logits within n standard deviations of the largest; 0 is off.", ge=0),
    formula="keep i with x_i ≥ M − n·σ, σ² = Σ(x_j − mean)²/N over the N tokens left",
    boundary="Inclusive; σ in the population form, over finite logits; the same at any temperature; 0 is off.",
    source="Tang et al. 2024, arXiv:2411.07641, §3",
    cut=_cut,
)
