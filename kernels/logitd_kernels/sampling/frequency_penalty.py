"""Frequency penalty: tokens of the output become less likely with each time that they came."""

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.history import SCOPES, in_scope
from logitd_kernels.sampling.parameters import Choice, Number
from logitd_kernels.sampling.repetition_penalty import EXEMPT, WINDOW
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    ids, counts = np.unique(in_scope(edits, values, values["frequency_scope"]), return_counts=True)
    edits.add(dict(zip(ids.tolist(), (-values["frequency_penalty"] * counts).tolist(), strict=True)))


FREQUENCY_PENALTY = Edit(
    name="frequency_penalty",
    parameter=Number("frequency_penalty", 0.0, "Subtracted for each time that an id came.", ge=-100, le=100),
    options=(
        Choice("frequency_scope", "output", SCOPES, "The ids that frequency_penalty counts."),
        WINDOW,
        EXEMPT,
    ),
    formula="x_i ← x_i − f·count_i, for each i in scope",
    boundary="Negative values make repetition likelier; 0 is off.",
    source="OpenAI API, frequency_penalty",
    edit=_edit,
    differs={
        "vllm": "Bounds are [-2, 2].",
        "llama.cpp": "Counts the last 64 tokens, prompt and output: set frequency_scope and penalty_window.",
        "sglang": "Bounds are [-2, 2]; acts before repetition_penalty.",
        "exllama": "Counts prompt and output: set frequency_scope.",
    },
)
