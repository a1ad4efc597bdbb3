"""min_p: keep tokens at least a fraction as likely as the likeliest."""

import math

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    return row.above(row.max + row.temperature * math.log(values["min_p"]))


MIN_P = Cut(
    name="min_p",
    parameter=Number("min_p", 0.0, "Keep tokens with at least this fraction of the largest probability.", ge=0, le=1),
    formula="keep i with x_i ≥ M + T·ln(min_p)",
    boundary="Inclusive, in logit space; 1 keeps every token tied with the largest; 0 is off.",
    source="Nguyen et al. 2024, arXiv:2407.01082, §3",
    cut=_cut,
    differs={
        "vllm": "Compares probabilities: a token at the boundary may fall to the other side of a rounding.",
        "llama.cpp": "Acts before the temperature, as its dialect does.",
        "sglang": "Acts after top_k and top_p, as its dialect does.",
    },
)
