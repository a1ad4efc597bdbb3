"""Banned ids: tokens that must not be drawn."""

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.parameters import TokenIds
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    ids = values["banned_ids"]
    edits.check_ids("banned_ids", ids)
    edits.forbid(ids)


BANNED_IDS = Edit(
    name="banned_ids",
    parameter=TokenIds("banned_ids", "Token ids that must not be drawn."),
    formula="x_i ← −∞ for i in banned_ids",
    boundary="Wins over logit_bias; ids outside the vocabulary are refused; a row left empty fails as `all_masked`.",
    source="vLLM bad words, single tokens",
    edit=_edit,
)
