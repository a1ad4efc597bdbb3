"""epsilon_cutoff: keep tokens with at least a probability."""

import math

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    return row.above(row.max + row.temperature * (math.log(values["epsilon_cutoff"]) + math.log(kept.mass)))


EPSILON_CUTOFF = Cut(
    name="epsilon_cutoff",
    parameter=Number("epsilon_cutoff", 0.0, "Keep tokens with at least this probability; 0 is off.", ge=0, le=1),
    formula="keep i with p_i ≥ ε, p renormalised over what earlier steps kept",
    boundary="Inclusive; the likeliest token is always kept; 0 is off.",
    source="Hewitt, Manning and Liang 2022, arXiv:2210.15191, §4.1",
    cut=_cut,
    differs={"hf": "Keeps all equal to the likeliest where none reaches ε."},
)
