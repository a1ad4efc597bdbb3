"""top_a: keep tokens above a share of the squared largest probability."""

import math

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    return row.above(row.max + row.temperature * (math.log(values["top_a"]) - math.log(kept.mass)))


TOP_A = Cut(
    name="top_a",
    parameter=Number("top_a", 0.0, "Keep tokens with p ≥ a times the square of the largest p; 0 is off.", ge=0, le=1),
    formula="keep i with p_i ≥ a·p_max²",
    boundary="Inclusive; the likeliest token is always kept; 0 is off.",
    source="BlinkDL, RWKV-LM, top-a sampling",
    cut=_cut,
)
