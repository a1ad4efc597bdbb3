"""Repetition penalty: tokens of the sequence so far become less likely by a factor on their logit."""

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.history import SCOPES, in_scope
from logitd_kernels.sampling.parameters import Choice, Number, TokenIds
from logitd_kernels.sampling.transform import Edit, Values

# Of all three penalties.
WINDOW = Number(
    "penalty_window", 0, "How many of the last ids in scope the penalties count; 0 is all.", ge=0, integer=True
)
EXEMPT = TokenIds("penalty_exempt_ids", "Token ids that no penalty touches.")


def _edit(edits: Edits, values: Values) -> None:
    edits.penalise(np.unique(in_scope(edits, values, values["repetition_scope"])), values["repetition_penalty"])


REPETITION_PENALTY = Edit(
    name="repetition_penalty",
    parameter=Number("repetition_penalty", 1.0, "Divides positive logits of ids seen before, multiplies others.", gt=0),
    options=(
        Choice("repetition_scope", "both", SCOPES, "The ids that repetition_penalty counts."),
        WINDOW,
        EXEMPT,
    ),
    formula="x_i ← x_i/r if x_i > 0 else x_i·r, for each i in scope",
    boundary="Each id once, however often it comes; x = 0 stays; r < 1 makes repetition likelier; 1 is off.",
    source="Keskar et al. 2019, arXiv:1909.05858, §4.1",
    edit=_edit,
    differs={
        "llama.cpp": "Counts the last 64 tokens: set penalty_window.",
        "sglang": "Counts the output only (repetition_scope), and acts after the additive penalties.",
        "exllama": "Fades out over a range of the last tokens.",
    },
)
