"""top_h: keep the likeliest tokens while their share of the entropy is within a budget."""

import math

import numpy as np

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow

_FIRST = 64  # tokens looked at; eight times as many where they are not enough
_SLACK = 1 + 2.0**-40  # of sums that are equal but for their rounding


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    log_mass = math.log(kept.mass)
    budget = values["top_h"] * row.entropy(kept) * kept.mass * _SLACK
    size = _FIRST
    while True:
        masses, energies = (sums[: min(size, kept.count)] for sums in row.head(min(size, kept.count)).sums)
        # Σ −p ln p over a prefix, times the mass of all
        count = int(np.searchsorted(energies + masses * log_mass, budget, side="right"))
        if count < len(masses) or size >= kept.count:
            return row.first(max(1, count)) if count < kept.count else kept
        size *= 8


TOP_H = Cut(
    name="top_h",
    parameter=Number("top_h", 1.0, "Keep the likeliest tokens within this share of the entropy.", gt=0, le=1),
    formula="keep the longest prefix with −Σ p_i ln p_i ≤ h·H, p and H of the tokens left",
    boundary="The likeliest token is always kept; 1 is off.",
    source="Potraghloo et al. 2025, arXiv:2509.02510, §4",
    cut=_cut,
    differs={"hf": "Looks at the 100 likeliest tokens alone, renormalised."},
)
