"""XTC: exclude top choices, now and then, where there is more than one."""

import math

from logitd_kernels import philox
from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Band, Values
from logitd_kernels.select.ordered import OrderedRow


def _band(row: OrderedRow, kept: Prefix, values: Values) -> tuple[int, int]:
    u = philox.uniform(values["seed"], values["stream"], values["step"], 0, philox.PURPOSE_XTC)
    threshold = values["xtc_threshold"] * kept.mass
    if u > values["xtc_probability"] or threshold > 1:
        return 0, kept.count
    above = kept.count
    if threshold > 0:
        above = min(above, row.above(row.max + row.temperature * math.log(threshold)).count)
    return above - 1, kept.count


XTC = Band(
    name="xtc",
    parameter=Number("xtc_probability", 0.0, "How often the likeliest tokens are left out; 0 is off.", ge=0, le=1),
    options=(Number("xtc_threshold", 0.1, "The probability from which a token counts as a top choice.", ge=0, le=1),),
    formula="with xtc_probability: of the tokens with p_i ≥ threshold keep the least likely alone, and all below",
    boundary="Inclusive; ties by the total order; one token at the threshold changes nothing; decided once a row, by a "
    "uniform of its own (docs/replay.md).",
    source="p-e-w 2024, text-generation-webui pull request 6335; llama.cpp",
    band=_band,
    differs={
        "llama.cpp": "Does nothing for a threshold above 0.5.",
        "exllama": "Version 3 weighs the top choices by the expectation instead of drawing.",
    },
)
