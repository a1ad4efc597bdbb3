"""min_tokens: no stop token before so many tokens are generated."""

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.parameters import Number, TokenIds
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    ids = values["stop_ids"] or ()
    edits.check_ids("stop_ids", ids)
    generated = len(values["output_ids"]) if "output_ids" in values else values["step"]
    if generated < values["min_tokens"]:
        edits.forbid(ids)


MIN_TOKENS = Edit(
    name="min_tokens",
    parameter=Number("min_tokens", 0, "How many tokens to generate before a stop id may come.", ge=0, integer=True),
    options=(TokenIds("stop_ids", "Token ids that end a sequence."),),
    formula="x_i ← −∞ for i in stop_ids while fewer than min_tokens are generated",
    boundary="Counts output_ids, or where they are not sent takes `step`; a row left empty fails as `all_masked`.",
    source="vLLM min_tokens; Hugging Face MinNewTokensLengthLogitsProcessor",
    edit=_edit,
    differs={"vllm": "Lets stop ids pass where nothing else is left."},
)
