"""Requests as data: their fields, checked strictly, and their OpenAPI form, derived from the kernel's registry."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from logitd.errors import FieldError, Invalid
from logitd.wire import json as wire_json
from logitd.wire.known import ROWS, Tensors
from logitd_kernels import PARAMETERS, TRANSFORMS
from logitd_kernels.sampling.order import DIALECTS
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

_HOT: Json = {"type": "number", "exclusiveMinimum": 0}

LOGITS_SCHEMA: Json = {**_ROWS, "description": '[rows, vocab] logits; null and "-inf" mean −inf.'}
ORDER_SCHEMA: Json = {
    "anyOf": [
        {"type": "array", "items": {"enum": [one.name for one in TRANSFORMS]}, "uniqueItems": True},
        {"type": "null"},
    ]
}
IDS_SCHEMA: Json = {**_IDS, "description": "[rows, tokens] ids, padded with -1."}
GUIDANCE_SCHEMA: Json = {**_ROWS, "description": "[rows, vocab] logits of the same rows without what guides them."}
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
    trace: bool = Field(
        False, description="Report what each active transform left, and in words which parameter decided (whole rows)."
    )
    strict: bool = Field(False, description="Refuse the request (422) if any row is bad.")
    dialect: Literal[tuple(DIALECTS)] = Field("vllm", description="The system whose order the transforms act in.")  # type: ignore[valid-type]
    order: Annotated[Any, WithJsonSchema(ORDER_SCHEMA)] = Field(
        None,
        description="Transforms in an order of your own; those it leaves out keep their place behind the dialect's.",
    )
    vocab_size: int | None = Field(
        None,
        ge=1,
        description="V: of a head form, where JSON has it inside head; of whole rows that are padded beyond it.",
    )


def _one_or_each(name: str) -> Json:
    """Return the schema of a parameter that all rows share, or that each has."""
    one = {key: value for key, value in PARAMETERS[name].schema().items() if key not in ("default", "description")}
    return {"anyOf": [one, {"type": "array", "items": one}]}


class SoftmaxFields(StrictFields):
    """Everything in a softmax request that is not a tensor."""

    temperature: Annotated[Any, WithJsonSchema({"anyOf": [_HOT, {"type": "array", "items": _HOT}]})] = Field(
        1.0, description="T > 0, for all rows or for each."
    )
    kind: Literal[KINDS] = Field("softmax", description="What `values` holds; logsumexp leaves it out.")  # type: ignore[valid-type]
    seed: Annotated[Any, WithJsonSchema(_one_or_each("seed"))] = Field(
        None, description="Key of the noise of gumbel_softmax, for all rows or for each; drawn for each if null."
    )
    stream: Annotated[Any, WithJsonSchema(_one_or_each("stream"))] = Field(0, description="Counter word of the noise.")
    step: Annotated[Any, WithJsonSchema(_one_or_each("step"))] = Field(0, description="Counter word of the noise.")


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
    schema["properties"] = {**tensors, **schema["properties"]}
    return {**schema, "required": required} if required else schema


def request_body(json_schema: Json, known: Tensors = ROWS) -> Json:
    """Return the OpenAPI request body: JSON in full, the binary forms by their media types."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = dict.fromkeys(known.media_types, binary)
    return {"requestBody": {"required": True, "content": {**content, wire_json.MEDIA_TYPE: {"schema": json_schema}}}}
