"""Dynamic temperature: hotter where the candidates are many and alike, colder where one stands out."""

import math
import sys

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Scale, Values
from logitd_kernels.select.ordered import OrderedRow


def _temperature(row: OrderedRow, kept: Prefix, values: Values) -> float:
    if kept.count < 2:
        return row.temperature
    plain = row.at(1.0)
    everything = plain.stats.everything
    left = everything if kept.count >= everything.count else plain.first(kept.count)
    share = min(1.0, plain.entropy(left) / math.log(left.count))
    low = max(0.0, values["temperature"] - values["dynatemp_range"])
    high = min(values["temperature"] + values["dynatemp_range"], sys.float_info.max)
    return float(low + (high - low) * share ** values["dynatemp_exponent"])


DYNATEMP = Scale(
    name="dynatemp",
    parameter=Number(
        "dynatemp_range", 0.0, "How far the temperature goes up and down with the entropy; 0 is off.", ge=0
    ),
    options=(Number("dynatemp_exponent", 1.0, "Power of the entropy's share that sets the temperature.", gt=0),),
    formula="T = T_min + (T_max − T_min)·(H/ln n)^exponent, H in nats at T = 1 of the n tokens left",
    boundary="T_min = max(0, T − range); one token left changes nothing; a T of 0 takes the largest logit.",
    source="kalomaze 2023; llama.cpp temp_ext",
    temperature=_temperature,
    differs={"llama.cpp": "n counts what top_n_sigma dropped."},
)
