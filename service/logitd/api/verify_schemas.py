"""A request to verify draft tokens as data: its fields, checked strictly, and its OpenAPI form."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from logitd.api.schemas import LOGITS_SCHEMA, ORDER_SCHEMA, PARAMS_SCHEMA, StrictFields
from logitd_kernels.sampling.order import DIALECTS

Json = dict[str, Any]

_EACH: Json = {"type": "array", "items": PARAMS_SCHEMA}
_FLOATS: Json = LOGITS_SCHEMA["items"]
_IDS: Json = {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": -1}}}
_PROBABILITIES: Json = {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}}


def _three_deep(row: Json, description: str) -> Json:
    rows = {"type": "array", "items": {"type": "array", "items": row}}
    return {**rows, "description": description}


VERIFY_SCHEMA: Json = {
    "target_logits": _three_deep(
        _FLOATS,
        "[rows, drafts + 1, vocab] logits of the target model: before each draft token, and after the last. "
        'null and "-inf" mean −inf.',
    ),
    "draft_ids": {
        **_IDS,
        "description": "[rows, drafts] draft token ids. -1 is no token, and ends the draft of its row.",
    },
    "draft_probs": _three_deep(
        _PROBABILITIES,
        "[rows, drafts, vocab] distributions that the draft tokens were drawn from; each sums to 1 within 1e-3 "
        "(F16 and BF16: 1e-2). Without draft_probs and draft_logits the draft was deterministic, as an n-gram's.",
    ),
    "draft_logits": _three_deep(
        _FLOATS, "[rows, drafts, vocab] logits of the draft model, instead of draft_probs; draft_params act on them."
    ),
    "draft_lengths": {
        "type": "array",
        "items": {"type": "integer", "minimum": 0},
        "description": "[rows] how many draft tokens each row has; by default up to its first -1.",
    },
    "prompt_ids": {**_IDS, "description": "[rows, tokens] ids before the generated ones, padded with -1."},
    "output_ids": {
        **_IDS,
        "description": "[rows, tokens] ids generated before the draft, padded with -1. With prompt_ids or output_ids "
        "penalties count the draft tokens before each position too.",
    },
}


class VerifyFields(StrictFields):
    """Everything in a request to verify that is not a tensor."""

    params: Annotated[Any, WithJsonSchema({"anyOf": [PARAMS_SCHEMA, _EACH]})] = Field(
        default_factory=dict,
        description="Sampling parameters of the target, one object for all rows, or a list with one for each; n is 1.",
    )
    draft_params: Annotated[Any, WithJsonSchema({"anyOf": [PARAMS_SCHEMA, _EACH, {"type": "null"}]})] = Field(
        None, description="Those of draft_logits, without the parameters of the draw; by default params."
    )
    method: Literal["standard", "block"] = Field(
        "standard", description="Token by token, or the whole draft together, which accepts no fewer on average."
    )
    strict: bool = Field(False, description="Refuse the request (422) if any row is bad.")
    dialect: Literal[tuple(DIALECTS)] = Field("vllm", description="The system whose order the transforms act in.")  # type: ignore[valid-type]
    order: Annotated[Any, WithJsonSchema(ORDER_SCHEMA)] = Field(
        None, description="Transforms in an order of your own, of target and draft, as for /v1/sample."
    )
    vocab_size: int | None = Field(
        None, ge=1, description="V, where target_logits, draft_probs or draft_logits are padded beyond it."
    )
