"""Requests as data: their fields, checked strictly, and their OpenAPI form, derived from the kernel's registry."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from logitd.errors import FieldError, Invalid
from logitd.wire import json as wire_json
from logitd.wire.known import ROWS, Tensors
from logitd_kernels import PARAMETERS
from logitd_kernels.softmax import KINDS

Json = dict[str, Any]

PARAMS_SCHEMA: Json = {
    "type": "object",
    "additionalProperties": False,
    "description": "Sampling parameters of a row; every one has a neutral default.",
    "properties": {name: parameter.schema() for name, parameter in PARAMETERS.items()},
}
_FLOATS: Json = {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}, {"const": "-inf"}]}}
_ROWS: Json = {"type": "array", "items": _FLOATS}
_IDS: Json = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}

_HOT: Json = {"type": "number", "exclusiveMinimum": 0, "description": "Softmax temperature, for all rows or for each."}

LOGITS_SCHEMA: Json = {**_ROWS, "description": '[rows, vocab] logits; null and "-inf" mean −inf.'}
MASK_SCHEMA: Json = {
    **_IDS,
    "description": "[rows, ⌈vocab/32⌉] int32 bitmask, least significant bit first, 1 = allowed.",
}
HEAD_SCHEMA: Json = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ids", "logits", "log_z", "vocab_size"],
    "description": "The N largest logits of each row, ties by ascending id, and log Σ e^(x/T) of the whole row.",
    "properties": {
        "ids": _IDS,
        "logits": _ROWS,
        "log_z": {"anyOf": [{"type": "array", "items": {"type": "number"}}, _ROWS]},
        "log_z_temperatures": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "default": [1.0]},
        "finite_count": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "vocab_size": {"type": "integer", "minimum": 1},
    },
}


class StrictFields(BaseModel):
    """Fields of exactly the types that they are declared with, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Fields = TypeVar("Fields", bound=StrictFields)


class SampleFields(StrictFields):
    """Everything in a sample request that is not a tensor."""

    params: Annotated[Any, WithJsonSchema({"anyOf": [PARAMS_SCHEMA, {"type": "array", "items": PARAMS_SCHEMA}]})] = (
        Field(default_factory=dict, description="One object for all rows, or a list with one for each row.")
    )
    logprobs: int = Field(0, ge=0, description="How many top log-probabilities to report for each row; 0 for none.")
    logprobs_mode: Literal["raw", "processed"] = Field(
        "raw", description="Of the untouched row at T = 1, or after edits and temperature."
    )
    trace: bool = Field(False, description="Report entropy and support after each active transform.")
    strict: bool = Field(False, description="Refuse the request (422) if any row is bad.")
    dialect: Literal["vllm"] = Field("vllm", description="The order in which transforms act.")
    vocab_size: int | None = Field(None, ge=1, description="V, with the head form only (in JSON: inside head).")


class SoftmaxFields(StrictFields):
    """Everything in a softmax request that is not a tensor."""

    temperature: Annotated[Any, WithJsonSchema({"anyOf": [_HOT, {"type": "array", "items": _HOT}], "default": 1.0})] = (
        1.0
    )
    kind: Literal[KINDS] = Field("softmax", description="What `values` holds; logsumexp leaves it out.")  # type: ignore[valid-type]


def check(model: type[Fields], fields: Mapping[str, Any], path_of: Callable[[str], str] = str) -> Fields:
    """Validate fields, naming the path of each fault and never repeating a value that was sent.

    `path_of` turns a field's name into where the caller wrote it.

    Raises:
        Invalid: with the path and reason of every fault.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        faults = [FieldError(path_of(_path(fault["loc"])), fault["msg"]) for fault in error.errors(include_url=False)]
    shown = "; ".join(f"{fault.path}: {fault.message}" for fault in faults[:3])
    raise Invalid(shown, faults[:20])


def _path(location: tuple[int | str, ...]) -> str:
    """Return ("params", 3, "top_p") as params[3].top_p."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in location]
    return "".join(parts).lstrip(".") or "body"


def json_body(model: type[StrictFields], tensors: Json, required: list[str]) -> Json:
    """Return the OpenAPI schema of a JSON body: the model's fields and the tensors as nested lists."""
    schema = model.model_json_schema()
    schema["properties"] = {**tensors, **{k: v for k, v in schema["properties"].items() if k != "vocab_size"}}
    return {**schema, "required": required} if required else schema


def request_body(json_schema: Json, known: Tensors = ROWS) -> Json:
    """Return the OpenAPI request body: JSON in full, the binary forms by their media types."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = dict.fromkeys(known.media_types, binary)
    return {"requestBody": {"required": True, "content": {**content, wire_json.MEDIA_TYPE: {"schema": json_schema}}}}
