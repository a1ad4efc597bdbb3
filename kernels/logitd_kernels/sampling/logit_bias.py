"""Logit bias: add a constant to single logits."""

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.parameters import Bias
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    bias = values["logit_bias"]
    edits.check_ids("logit_bias", list(bias))
    edits.add(bias)


LOGIT_BIAS = Edit(
    name="logit_bias",
    parameter=Bias("logit_bias", "Added to single logits before anything else; -inf forbids the token."),
    formula="x_i ← x_i + b_i",
    boundary="Added in float64; −∞ + b stays −∞; ids outside the vocabulary are refused.",
    source="OpenAI API, logit_bias (not clamped here)",
    edit=_edit,
    differs={"vllm": "Clamps to [-100, 100].", "sglang": "Acts after the mask.", "exllama": "Drops NaN, +∞ and 0."},
)
