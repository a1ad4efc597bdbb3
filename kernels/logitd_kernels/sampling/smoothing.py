"""Smoothing (quadratic sampling): logits near the largest come closer to it, those far below fall further."""

import sys
from collections.abc import Callable

import numpy as np

from logitd_kernels.head import Floats
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Remap, Values


def _remap(values: Values) -> Callable[[Floats], Floats]:
    factor, curve = values["smoothing_factor"], values["smoothing_curve"]
    quadratic, cubic = factor * (3 - curve) / 2, factor * (curve - 1) / 2

    def smooth(deltas: Floats) -> Floats:
        near = np.maximum(deltas, -1e100)  # so that no square or cube overflows
        bent: Floats = np.maximum(-quadratic * near**2 + cubic * near**3, -sys.float_info.max)
        return bent

    return smooth


SMOOTHING = Remap(
    name="smoothing",
    parameter=Number("smoothing_factor", 0.0, "How strongly logits are bent; 0 is off.", ge=0, le=1000),
    options=(Number("smoothing_curve", 1.0, "From a parabola (1) to a cubic (3).", ge=1, le=3),),
    formula="x_i ← −s·(3 − c)/2·d² + s·(c − 1)/2·d³, d = (x_i − M)/T",
    boundary="Keeps the order of the logits; 0 is off. After a step that dropped the likeliest tokens, `entropy` and "
    "`kept_mass` are of what was left then.",
    source="kalomaze 2024, text-generation-webui pull requests 5403 and 5551",
    remap=_remap,
)
