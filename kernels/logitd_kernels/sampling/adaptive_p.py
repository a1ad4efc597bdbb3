"""adaptive_p: weigh the tokens left by how close their probability is to a target that corrects itself."""

import numpy as np

from logitd_kernels.head import Floats
from logitd_kernels.sampling.parameters import Number, Optional
from logitd_kernels.sampling.transform import Reweigh, Values

_WIDTH, _PEAK, _SHARPNESS = 0.3, 5.0, 10.0


def _state(values: Values) -> tuple[float, float]:
    """Return Σ decay^j·p and Σ decay^j over the tokens drawn so far; at the start as if all had been on target."""
    total, weight = values["adaptive_sum"], values["adaptive_weight"]
    if total is None or weight is None:
        weight = 1 / (1 - values["adaptive_decay"])
        total = values["adaptive_target"] * weight
    return total, weight


def _weigh(probabilities: Floats, values: Values) -> Floats:
    target = values["adaptive_target"]
    total, weight = _state(values)
    aim = min(1.0, max(0.0, 2 * target - total / weight)) if weight > 0 else target
    distance = np.abs(probabilities - aim) / _WIDTH
    logits = _PEAK - _SHARPNESS * distance**2 / (1 + distance)
    weights: Floats = np.exp(logits - logits.max())
    return weights


def _update(values: Values, probability: float) -> dict[str, float]:
    total, weight = _state(values)
    decay = values["adaptive_decay"]
    return {"adaptive_sum": probability + decay * total, "adaptive_weight": 1 + decay * weight}


ADAPTIVE_P = Reweigh(
    name="adaptive_p",
    parameter=Optional(
        Number("adaptive_target", 0.0, "The probability that drawn tokens should have; null is off.", ge=0, le=1)
    ),
    options=(
        Number("adaptive_decay", 0.9, "How long earlier tokens count.", ge=0, le=0.99),
        Optional(Number("adaptive_sum", 0.0, "The state: what the step before returned.", ge=0)),
        Optional(Number("adaptive_weight", 0.0, "The state: what the step before returned.", ge=0)),
    ),
    formula="w_i = e^(5 − 10·d²/(1 + d)), d = |p_i − a|/0.3, a = 2·target − sum/weight within [0, 1]; "
    "then sum ← p(token) + decay·sum, weight ← 1 + decay·weight",
    boundary="Acts last, on the tokens left; `state` returns sum and weight; null is off.",
    source="MrJackSpade 2025, llama.cpp pull request 17927",
    weigh=_weigh,
    update=_update,
)
