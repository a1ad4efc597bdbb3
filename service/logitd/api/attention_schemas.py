"""Attention requests as data: their fields, and the OpenAPI form of their tensors."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from logitd.api.schemas import StrictFields
from logitd_kernels.attention import APPROXIMATE, MODES
from logitd_kernels.attention.streams import STREAMS

Json = dict[str, Any]

_NUMBERS: Json = {"type": "array", "items": {"type": "number"}}
_QKV: Json = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": _NUMBERS}}}
ATTENTION_SCHEMA: Json = {
    "q": {**_QKV, "description": "[B, Hq, Lq, d] queries."},
    "k": {**_QKV, "description": "[B, Hkv, Lk, d] keys; query head h reads KV head h // (Hq / Hkv)."},
    "v": {**_QKV, "description": "[B, Hkv, Lk, dv] values."},
    "mask": {"type": "array", "description": "Broadcast to [B, Hq, Lq, Lk]: booleans, true is seen; or a bias."},
    "lengths": {"type": "array", "items": {"type": "integer"}, "description": "[B] keys that are not padding."},
    "sink_logits": {**_NUMBERS, "description": "[Hq] logits that count in the normaliser alone."},
}


_STREAM: Json = {"type": "array", "items": {"type": "array", "items": _NUMBERS}}
STEP_SCHEMA: Json = {
    "k": {**_STREAM, "description": "[Hkv, T, d] keys."},
    "v": {**_STREAM, "description": "[Hkv, T, dv] values."},
    "q": {
        **_STREAM,
        "description": "[Hq, R, d] queries of the last R of these tokens, each to see what came up to itself.",
    },
}
QUERY_SCHEMA: Json = {"q": {**_STREAM, "description": "[Hq, R, d] queries that see everything so far."}}
LAYERS_SCHEMA: Json = {
    "layers": {
        "type": "object",
        "description": "q, k and v of each layer, by its number. In safetensors: tensors `0.q`, `0.k`, `0.v`, `1.q`, …",
        "additionalProperties": {"type": "object", "properties": dict.fromkeys(("q", "k", "v"), _QKV)},
    }
}


class CallFields(StrictFields):
    """What says how q, k and v meet, in every attention request."""

    layout: Literal["BHLD", "BLHD"] = Field("BHLD", description="Order of the dimensions of q, k, v and the output.")
    causal: bool = Field(False, description="A query sees no key beyond its own position.")
    align: Literal["bottom_right", "top_left"] = Field(
        "bottom_right", description="Whether the last query stands at the last key, or the first at the first."
    )
    window: int | None = Field(None, ge=1, description="Keys that a query sees, its own included; none for all.")
    sinks: int = Field(0, ge=0, description="The first keys, seen whatever the window says.")
    scale: float | None = Field(None, allow_inf_nan=False, description="Of q·k; none is 1/√d.")
    softcap: float | None = Field(None, gt=0, description="cap · tanh(score / cap), before the mask.")
    tolerance: float = Field(0.1, ge=0, allow_inf_nan=False, description="Relative error that a head may have.")
    rank: int = Field(12, ge=1, le=64, description="Of the quadratic part of `moment` and `hybrid`.")
    seed: int = Field(0, ge=0, lt=1 << 63, description="Of random features and of the error's interval.")
    orthogonal: bool = Field(True, description="Draw random projections in orthogonal blocks.")
    chunk: int = Field(128, ge=1, le=4096, description="Keys that a causal linear pass takes at once.")
    audit_rows: int = Field(64, ge=2, le=4096, description="Queries of each sequence that are computed exactly.")


class LayerFields(BaseModel):
    """A layer of a plan; what else a plan tells is for people."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    modes: list[Literal[MODES]]  # type: ignore[valid-type]


class PlanFields(BaseModel):
    """A plan, as `/v1/attention/plan` answers it."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    version: Literal[1]
    layers: dict[str, LayerFields]


class SessionFields(StrictFields):
    """What a session is opened with."""

    method: Literal[tuple(STREAMS)] = Field("hybrid", description="What is kept of the sequence.")  # type: ignore[valid-type]
    heads: int = Field(ge=1, le=1024, description="Hq, query heads.")
    kv_heads: int | None = Field(None, ge=1, description="Hkv; none is as many as `heads`.")
    dim: int = Field(ge=1, le=1024, description="d, of queries and keys.")
    value_dim: int | None = Field(None, ge=1, le=1024, description="dv; none is `dim`.")
    scale: float | None = Field(None, allow_inf_nan=False, description="Of q·k; none is 1/√d.")
    rank: int = Field(12, ge=1, le=64, description="Of the quadratic part of `moment` and `hybrid`.")
    feature_dim: int | None = Field(None, ge=1, le=8192, description="Features a head; none is 4 · d.")
    seed: int = Field(0, ge=0, lt=1 << 63, description="Of random features.")
    orthogonal: bool = Field(True, description="Draw random projections in orthogonal blocks.")
    tolerance: float = Field(
        0.1,
        ge=0,
        allow_inf_nan=False,
        description="Relative error that a head may have; told again beside `early_error`.",
    )
    modes: list[Literal[tuple(STREAMS)]] | None = Field(  # type: ignore[valid-type]
        None, description="A method for each query head."
    )
    plan: PlanFields | None = Field(None, description="What `/v1/attention/plan` answered; goes with `layer`.")
    layer: int | None = Field(None, ge=0, description="Which layer of the plan this is.")


class StepFields(StrictFields):
    """Everything in a step of a session that is not a tensor."""

    step: int | None = Field(
        None,
        ge=0,
        description="Which step this is: not the next is refused (409), the last is answered again.",
    )


class PlanRequestFields(CallFields):
    """Everything in a plan request that is not a tensor."""

    methods: list[Literal[tuple(APPROXIMATE)]] | None = Field(  # type: ignore[valid-type]
        None, min_length=1, max_length=16, description="What heads may use beside `exact`; none is moment and hybrid."
    )


class AttentionFields(CallFields):
    """Everything in an attention request that is not a tensor."""

    mode: Literal[MODES] = Field(  # type: ignore[valid-type]
        "auto", description="`auto` is exact up to `threshold` keys and `method` beyond; `linear` is `method`."
    )
    method: Literal[tuple(APPROXIMATE)] = Field("hybrid", description="What `linear` is.")  # type: ignore[valid-type]
    policy: Literal["strict", "best_effort"] = Field(
        "strict", description="Heads over `tolerance` are recomputed exactly, or flagged."
    )
    threshold: int | None = Field(None, ge=0, description="In place of the service's own.")
    feature_dim: int | None = Field(None, ge=1, le=8192, description="Features a head; none is 4 · d.")
    layer: int | None = Field(None, ge=0, description="Which layer of the model this is.")
    exact_layers: list[int] | None = Field(None, description="Layers that are attended exactly whatever `mode` says.")
    heads: list[Literal[MODES]] | None = Field(  # type: ignore[valid-type]
        None, description="A mode for each query head."
    )
    plan: PlanFields | None = Field(None, description="What `/v1/attention/plan` answered; goes with `layer`.")


class CompareFields(CallFields):
    """Everything in a comparison request that is not a tensor."""

    methods: list[str] | None = Field(None, max_length=64, description="What to try beside `exact`; none is all.")
    feature_dims: list[Annotated[int, Field(ge=1, le=8192)]] | None = Field(
        None, max_length=8, description="Features a head of the random maps; none is 2, 4 and 8 times d."
    )
