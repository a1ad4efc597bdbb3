"""typical_p: keep the tokens whose surprise is closest to the entropy."""

import math

import numpy as np

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Band, Values
from logitd_kernels.select.ordered import OrderedRow


def _band(row: OrderedRow, kept: Prefix, values: Values) -> tuple[int, int]:
    entropy = row.entropy(kept)
    with np.errstate(over="ignore"):
        deltas = (row.logits_of(kept) - row.max) / row.temperature
    surprise = math.log(kept.mass) - deltas
    distance = np.abs(surprise - entropy)
    order = np.argsort(distance, kind="stable")
    sums = np.cumsum(np.exp(deltas[order]))
    crossing = min(int(np.searchsorted(sums, values["typical_p"] * kept.mass, side="left")), len(order) - 1)
    chosen = distance <= distance[order[crossing]]
    return int(np.count_nonzero(~chosen & (surprise < entropy))), int(
        kept.count - np.count_nonzero(~chosen & (surprise >= entropy))
    )


TYPICAL_P = Band(
    name="typical_p",
    parameter=Number("typical_p", 1.0, "Keep the most typical tokens whose probability reaches p.", gt=0, le=1),
    formula="keep the tokens of least |−ln p_i − H| whose probability reaches typical_p, H = −Σ p ln p in nats",
    boundary="The crossing token is in, with all that are as typical; the likeliest may go; 1 is off.",
    source="Meister et al. 2022, arXiv:2202.00666, §4",
    band=_band,
    differs={
        "llama.cpp": "Stops after the sum exceeds p; ties are cut by their place in the sort; a "
        "token of probability 0 makes its entropy NaN."
    },
)
