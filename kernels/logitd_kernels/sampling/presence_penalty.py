"""Presence penalty: tokens of the output become less likely, once."""

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.history import SCOPES, in_scope
from logitd_kernels.sampling.parameters import Choice, Number
from logitd_kernels.sampling.repetition_penalty import EXEMPT, WINDOW
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    ids = np.unique(in_scope(edits, values, values["presence_scope"]))
    edits.add(dict.fromkeys(ids.tolist(), -values["presence_penalty"]))


PRESENCE_PENALTY = Edit(
    name="presence_penalty",
    parameter=Number("presence_penalty", 0.0, "Subtracted from the logit of each id that came.", ge=-100, le=100),
    options=(
        Choice("presence_scope", "output", SCOPES, "The ids that presence_penalty counts."),
        WINDOW,
        EXEMPT,
    ),
    formula="x_i ← x_i − a, for each i in scope",
    boundary="Each id once; negative values make repetition likelier; 0 is off.",
    source="OpenAI API, presence_penalty",
    edit=_edit,
    differs={
        "vllm": "Bounds are [-2, 2].",
        "llama.cpp": "Counts the last 64 tokens, prompt and output: set presence_scope and penalty_window.",
        "sglang": "Bounds are [-2, 2]; acts before repetition_penalty.",
        "exllama": "Counts prompt and output: set presence_scope.",
    },
)
