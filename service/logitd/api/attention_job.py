"""From a decoded message to an attention call: tensors in the kernels' layout, a wish, limits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from logitd.api.attention_schemas import AttentionFields, CallFields, PlanFields
from logitd.api.requests import named, only
from logitd.api.schemas import check
from logitd.api.tensors import to_torch
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.wire import safetensors
from logitd.wire.message import Message
from logitd_kernels.attention import Call, Options, Visible, Wish
from logitd_kernels.errors import NonFiniteTensor, ShapeError

T = TypeVar("T")

_JSON_BYTES = 20  # of one number, about
_REQUIRED = ("q", "k", "v")


@dataclass(frozen=True)
class AttentionJob:
    """A checked attention request."""

    call: Call
    wish: Wish
    fields: AttentionFields


def attention_job(message: Message, settings: Settings, threshold: int, binary: bool) -> AttentionJob:
    """Check an attention request against the limits, before anything is computed or allocated.

    Args:
        message: the request.
        settings: the limits.
        threshold: the service's own.
        binary: whether the answer is safetensors.
    Raises:
        Invalid: naming the field, by the path at which the caller wrote it.
    """
    fields = check(AttentionFields, message.fields)
    call = attention_call(message, fields, settings)
    numbers = call.batch * call.heads * call.queries * call.v.shape[3]
    if not binary and numbers > settings.max_json_bytes // _JSON_BYTES:
        raise Invalid.at("accept", f"{numbers} numbers are too many for JSON; ask for {safetensors.MEDIA_TYPE}")
    return AttentionJob(call, _wish(fields, threshold), fields)


def attention_call(message: Message, fields: CallFields, settings: Settings, times: int = 1) -> Call:
    """Return a checked call.

    Args:
        message: the request.
        fields: its fields.
        settings: the limits.
        times: how often the call will be computed, at most.
    Raises:
        Invalid: naming the field.
    """
    only(message, (*_REQUIRED, "mask", "lengths", "sink_logits"))
    call = named(message, lambda: _call(message, fields))
    admit(call, settings, times)
    return call


def layer_calls(message: Message, fields: CallFields, settings: Settings, times: int) -> dict[int, Call]:
    """Return the checked call of each layer, by its number.

    Args:
        message: a request whose tensors are `LAYERS`.
        fields: its fields.
        settings: the limits.
        times: how often each call will be computed, at most.
    Raises:
        Invalid: naming the field.
    """
    names = sorted({int(name.partition(".")[0]) for name in message.tensors if message.known.json_path(name) != name})
    if not names:
        raise Invalid.at("layers", "is required: q, k and v of at least one layer")
    only(message, [f"{layer}.{name}" for layer in names for name in _REQUIRED])
    calls = {layer: of_layer(message, layer, lambda prefix: _call(message, fields, prefix)) for layer in names}
    for call in calls.values():
        admit(call, settings, times * len(calls))
    return calls


def of_layer(message: Message, layer: int, build: Callable[[str], T]) -> T:
    """Run kernel-side checks of one layer, naming its own tensors; `build` is given what their names begin with."""

    def prefixed() -> T:
        try:
            return build(f"{layer}.")
        except (ShapeError, NonFiniteTensor) as error:
            error.field = f"{layer}.{error.field}"
            raise

    return named(message, prefixed)


def options_of(fields: CallFields, feature_dim: int | None = None) -> Options:
    """Return what approximate methods are told."""
    return Options(fields.rank, feature_dim, fields.seed, fields.orthogonal, fields.chunk)


def _call(message: Message, fields: CallFields, prefix: str = "") -> Call:
    for name in _REQUIRED:
        if prefix + name not in message.tensors:
            raise Invalid.at(message.path(prefix + name), "is required")
    tensors = {name: to_torch(tensor) for name, tensor in message.tensors.items()}
    q, k, v = (_laid_out(tensors[prefix + name], fields, message.form == "json") for name in _REQUIRED)
    mask = tensors.get("mask")
    if mask is not None and mask.ndim < 4:
        mask = mask[(None,) * (4 - mask.ndim)]
    return Call(
        q,
        k,
        v,
        Visible(
            causal=fields.causal,
            align=fields.align,
            window=fields.window,
            sinks=fields.sinks,
            lengths=tensors.get("lengths"),
            mask=mask,
        ),
        scale=fields.scale,
        softcap=fields.softcap,
        sink_logits=tensors.get("sink_logits"),
    )


def _laid_out(tensor: torch.Tensor, fields: CallFields, json: bool) -> torch.Tensor:
    """Return [batch, heads, length, dim]; numbers in JSON are taken as float32."""
    if json and tensor.dtype == torch.float64:
        tensor = tensor.float()
    return tensor.transpose(1, 2) if fields.layout == "BLHD" and tensor.ndim == 4 else tensor


def admit(call: Call, settings: Settings, times: int) -> None:
    """Refuse a call of too much work, computed so many times, or with too large an answer.

    Raises:
        Invalid: naming the tensor.
    """
    pairs = call.batch * call.heads * call.queries * call.keys
    work = times * pairs * (call.q.shape[3] + call.v.shape[3])
    if work > settings.max_attention_multiply_adds:
        raise Invalid.at(
            "q", f"at most {settings.max_attention_multiply_adds} multiply-adds, exact attention is {work}"
        )
    numbers = call.batch * call.heads * call.queries * call.v.shape[3]
    if numbers * call.q.element_size() > settings.max_body_bytes:
        raise Invalid.at("v", f"an answer has at most {settings.max_body_bytes} bytes, this has {numbers} numbers")


def _wish(fields: AttentionFields, threshold: int) -> Wish:
    exactly = fields.layer is not None and fields.layer in (fields.exact_layers or ())
    return Wish(
        mode="exact" if exactly else fields.mode,
        method=fields.method,
        heads=None if exactly else _heads(fields),
        policy=fields.policy,
        tolerance=fields.tolerance,
        threshold=threshold if fields.threshold is None else fields.threshold,
        options=options_of(fields, fields.feature_dim),
        rows=fields.audit_rows,
    )


def _heads(fields: AttentionFields) -> tuple[str, ...] | None:
    """Return a mode for each head, from `heads` or from the plan's layer; None where neither was sent."""
    if fields.plan is None:
        return None if fields.heads is None else tuple(fields.heads)
    if fields.heads is not None:
        raise Invalid.at("heads", "send either heads or a plan, not both")
    return planned_modes(fields.plan, fields.layer)


def planned_modes(plan: PlanFields, layer: int | None) -> tuple[str, ...]:
    """Return the mode of each head in a layer of a plan.

    Raises:
        Invalid: no layer, or one that the plan does not have.
    """
    if layer is None:
        raise Invalid.at("layer", "is required with a plan")
    if str(layer) not in plan.layers:
        raise Invalid.at("layer", f"the plan has no layer {layer}")
    return tuple(plan.layers[str(layer)].modes)
