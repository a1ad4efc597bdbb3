"""Grammar bitmask: only tokens whose bit is set may be drawn."""

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    edits.allow_only(values["mask"])


MASK = Edit(
    name="mask",
    parameter=None,
    formula="x_i ← −∞ where bit i of the row's bitmask is 0",
    boundary="[B, ⌈V/32⌉] int32, least significant bit first, 1 = allowed; a row left empty fails as `all_masked`.",
    source="xgrammar's token bitmask layout",
    edit=_edit,
    differs={"llama.cpp": "Checks the drawn token, and masks only the rows in which it may not come."},
)
