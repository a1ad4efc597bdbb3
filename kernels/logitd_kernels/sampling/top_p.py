"""top_p: keep the smallest prefix whose probability reaches p."""

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    return row.reaching(values["top_p"] * kept.mass)


TOP_P = Cut(
    name="top_p",
    parameter=Number(
        "top_p", 1.0, "Keep the smallest set of likeliest tokens whose probability reaches p.", gt=0, le=1
    ),
    formula="keep the first j tokens, j least with p_1 + … + p_j ≥ top_p, p renormalised over what earlier steps kept",
    boundary="The crossing token is in; ties enter by ascending id; a tiny p keeps one token; 1 is off.",
    source="Holtzman et al. 2020, arXiv:1904.09751, §3.1",
    cut=_cut,
    differs={
        "hf": "Sums from the least likely token in float32 up to 1 − p: a sum that hits p may go either way; of "
        "equal tokens at the cut it keeps the highest ids.",
        "sglang": "Where a sum is p exactly, its fallback keeps one token more.",
        "exllama": "Leaves the crossing token out.",
    },
)
