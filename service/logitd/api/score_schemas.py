"""A request to score as data: its fields, checked strictly, and its OpenAPI form."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from logitd.api.schemas import (
    GUIDANCE_SCHEMA,
    IDS_SCHEMA,
    LOGITS_SCHEMA,
    MASK_SCHEMA,
    ORDER_SCHEMA,
    PARAMS_SCHEMA,
    SampleFields,
    StrictFields,
)
from logitd.wire.known import SCORE
from logitd_kernels.sampling.order import DIALECTS

Json = dict[str, Any]

SCORE_SCHEMA: Json = {
    "logits": LOGITS_SCHEMA,
    "targets": {
        "type": "array",
        "items": {"type": "integer", "minimum": -1},
        "description": "[rows] a token id for each row; -1 leaves the row out.",
    },
    "mask": MASK_SCHEMA,
    "prompt_ids": IDS_SCHEMA,
    "output_ids": IDS_SCHEMA,
    "guidance_logits": GUIDANCE_SCHEMA,
}
assert set(SCORE_SCHEMA) == set(SCORE.readers)
_OF_A_SAMPLE = SampleFields.model_fields


class ScoreFields(StrictFields):
    """Everything in a request to score that is not a tensor."""

    params: Annotated[Any, WithJsonSchema({"anyOf": [PARAMS_SCHEMA, {"type": "array", "items": PARAMS_SCHEMA}]})] = (
        Field(
            default_factory=dict,
            description="Sampling parameters of `logprob`, one object for all rows, or a list with one for each.",
        )
    )
    dialect: Literal[tuple(DIALECTS)] = Field("vllm", description=_OF_A_SAMPLE["dialect"].description)  # type: ignore[valid-type]
    order: Annotated[Any, WithJsonSchema(ORDER_SCHEMA)] = Field(None, description=_OF_A_SAMPLE["order"].description)
    vocab_size: int | None = Field(None, ge=1, description="V, of rows that are padded beyond it.")
    gradient: bool = Field(False, description="Report p − y, the gradient of −logprob_raw by the logits, of each row.")
