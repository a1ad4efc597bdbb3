"""Allowed ids: the only tokens that may be drawn."""

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.parameters import TokenIds
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    ids = values["allowed_ids"]
    edits.check_ids("allowed_ids", ids)
    allowed = np.zeros(edits.vocab_size, np.bool_)
    allowed[list(ids)] = True
    edits.allow_only(allowed)


ALLOWED_IDS = Edit(
    name="allowed_ids",
    parameter=TokenIds("allowed_ids", "The only token ids that may be drawn; null allows all."),
    formula="x_i ← −∞ for i not in allowed_ids",
    boundary="An empty list leaves nothing and the row fails as `all_masked`; ids outside the vocabulary are refused.",
    source="vLLM allowed_token_ids",
    edit=_edit,
)
