"""A request to analyse rows, and its answer, as data: fields, checked strictly, and their OpenAPI form."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from logitd.api.schemas import LOGITS_SCHEMA, PARAMS_SCHEMA, StrictFields, json_body
from logitd.wire import json as wire_json
from logitd_kernels.thermo import CODES

Json = dict[str, Any]

MAX_TEMPERATURES = 256  # of one request: each is a pass over every row

_POSITIVE: Json = {"type": "number", "exclusiveMinimum": 0}
RANGE_ENDS = ("from", "to", "step")
_TEMPERATURES: Json = {
    "anyOf": [
        {"type": "array", "items": _POSITIVE, "minItems": 1, "maxItems": MAX_TEMPERATURES},
        {
            "type": "object",
            "additionalProperties": False,
            "required": list(RANGE_ENDS),
            "properties": {
                "from": {**_POSITIVE, "description": "The first temperature."},
                "to": {**_POSITIVE, "description": "The last temperature, itself in where a step meets it."},
                "step": {**_POSITIVE, "description": "From each temperature to the next."},
            },
        },
    ],
    "default": [1.0],
}


class AnalyzeFields(StrictFields):
    """Everything in a request to analyse that is not a tensor."""

    temperatures: Annotated[Any, WithJsonSchema(_TEMPERATURES)] = Field(
        default_factory=lambda: [1.0],
        description=f"Temperatures > 0, a list or a range, at most {MAX_TEMPERATURES}.",
    )
    entropy: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Nats: answer the temperature at which a row has this entropy."
    )
    mass: float | None = Field(
        None, gt=0, le=1, description="Answer how many of the likeliest tokens hold this probability."
    )
    params: Annotated[Any, WithJsonSchema({"anyOf": [PARAMS_SCHEMA, {"type": "null"}]})] = Field(
        None, description="Sampling parameters, to be warned where one masks another; they change no number."
    )


REQUEST_SCHEMA = json_body(AnalyzeFields, {"logits": LOGITS_SCHEMA}, ["logits"])


def _number(description: str, kind: str = "number") -> Json:
    return {"type": [kind, "null"], "description": description}


_POINT: Json = {
    "temperature": _number("T."),
    "log_z": _number("log Σ e^(z/T); null where z/T passes float64."),
    "free_energy": _number("F = −T log Z; null where it passes float64."),
    "internal_energy": _number("U = −⟨z⟩."),
    "entropy": _number("S = −Σ p ln p, nats."),
    "heat_capacity": _number("C = dU/dT = (⟨z²⟩ − ⟨z⟩²)/T², nats."),
    "effective_states": _number("e^S."),
    "max_probability": _number("Of the likeliest token."),
    "nucleus": _number("How many of the likeliest tokens hold `mass`; null where it was not asked for.", "integer"),
}
_WARNING: Json = {
    "code": {"enum": list(CODES), "description": "; ".join(f"{code}: {words}" for code, words in CODES.items())},
    "detail": {"type": "string", "description": "What it means for this row, in words."},
}
_ERROR: Json = {
    "code": {"type": "string", "description": "non_finite or all_masked."},
    "row": {"type": "integer", "description": "Which row."},
    "detail": {"type": "string", "description": "Why it has no answer, in words."},
}


def _object(properties: Json, description: str) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties, "description": description}


_ROW: Json = {
    "sweep": {
        "anyOf": [{"type": "array", "items": _object(_POINT, "The row at one temperature.")}, {"type": "null"}],
        "description": "One entry for each temperature, in the order asked for; null where the row failed.",
    },
    "temperature_for_entropy": _number("Where S is `entropy`; null where none was asked for, or none has it."),
    "warnings": {
        "type": "array",
        "items": _object(_WARNING, "What deserves a second look."),
        "description": "What deserves a second look in this row.",
    },
    "error": {"anyOf": [_object(_ERROR, "Why the row failed."), {"type": "null"}], "description": "null: it did not."},
}
_ANSWER: Json = _object(
    {
        "rows": {"type": "array", "items": _object(_ROW, "One row."), "description": "One for each row of logits."},
        "seconds": {"type": "object", "description": "Where the time went, by stage."},
    },
    "The state functions of every row at every temperature.",
)
ANSWERS: Json = {
    "responses": {"200": {"description": "Every row analysed.", "content": {wire_json.MEDIA_TYPE: {"schema": _ANSWER}}}}
}
