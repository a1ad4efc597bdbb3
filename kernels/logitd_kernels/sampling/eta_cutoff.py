"""eta_cutoff: keep tokens above a probability that falls with the entropy."""

import math

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    log_epsilon = math.log(values["eta_cutoff"])
    log_eta = min(log_epsilon, log_epsilon / 2 - row.entropy(kept))
    return row.above(row.max + row.temperature * (log_eta + math.log(kept.mass)))


ETA_CUTOFF = Cut(
    name="eta_cutoff",
    parameter=Number("eta_cutoff", 0.0, "Keep tokens with p ≥ min(ε, √ε·e^(−H)); 0 is off.", ge=0, le=1),
    formula="keep i with p_i ≥ min(ε, √ε·e^(−H)), p and H (nats) of the tokens left",
    boundary="Inclusive; the likeliest token is always kept; 0 is off.",
    source="Hewitt, Manning and Liang 2022, arXiv:2210.15191, §4.2",
    cut=_cut,
)
