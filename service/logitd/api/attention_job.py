"""From a decoded message to an attention call: tensors in the kernels' layout, a wish, limits."""

from collections.abc import Callable, Sequence
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
from logitd_kernels.attention import Call, Estimate, Options, Visible, Wish, estimate
from logitd_kernels.errors import NonFiniteTensor, ShapeError

T = TypeVar("T")

JSON_BYTES = 20  # of one number, about
_REQUIRED = ("q", "k", "v")
_SHARED = ("mask", "lengths", "sink_logits")


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
    fields = check(AttentionFields, message.fields, message.path)
    call = attention_call(message, fields, settings)
    wish = _wish(fields, threshold)
    modes = {wish.method if mode in ("auto", "linear") else mode for mode in wish.heads or (wish.mode,)}
    admit_work([estimate(call, mode, wish.options, wish.rows) for mode in modes], settings)
    if not binary:
        check_json_answer(call.batch * call.heads * call.queries * call.v.shape[3], settings)
    return AttentionJob(call, wish, fields)


def attention_call(message: Message, fields: CallFields, settings: Settings) -> Call:
    """Return a checked call of admissible size.

    Args:
        message: the request.
        fields: its fields.
        settings: the limits.
    Raises:
        Invalid: naming the field.
    """
    only(message, (*_REQUIRED, *_SHARED))
    call = named(message, lambda: _call(message, fields))
    admit_size([call], settings)
    return call


def layer_calls(message: Message, fields: CallFields, settings: Settings) -> dict[int, Call]:
    """Return the checked call of each layer, by its number.

    Args:
        message: a request whose tensors are `LAYERS`.
        fields: its fields.
        settings: the limits.
    Raises:
        Invalid: naming the field.
    """
    names = sorted({int(name.partition(".")[0]) for name in message.tensors if message.known.json_path(name) != name})
    if not names:
        raise Invalid.at("layers", "is required: q, k and v of at least one layer")
    only(message, [f"{layer}.{name}" for layer in names for name in _REQUIRED])
    calls = {layer: of_layer(message, layer, lambda prefix: _call(message, fields, prefix)) for layer in names}
    admit_size(list(calls.values()), settings)
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
    own = (to_torch(message.tensors[prefix + name]) for name in _REQUIRED)
    q, k, v = (_laid_out(tensor, fields, message.form == "json") for tensor in own)
    tensors = {name: to_torch(message.tensors[name]) for name in _SHARED if name in message.tensors}
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


def admit_size(calls: Sequence[Call], settings: Settings) -> None:
    """Refuse calls of too many heads, too large dims, or too large an answer, whatever else is zero.

    Raises:
        Invalid: naming the tensor.
    """
    heads = sum(call.batch * call.heads for call in calls)
    if heads > settings.max_attention_heads:
        raise Invalid.at("q", f"at most {settings.max_attention_heads} heads a request, B · Hq, got {heads}")
    for call in calls:
        for name, dim in (("q", call.q.shape[3]), ("v", call.v.shape[3])):
            if dim > settings.max_attention_dim:
                raise Invalid.at(name, f"a dim is at most {settings.max_attention_dim}, got {dim}")
        numbers = call.batch * call.heads * call.queries * call.v.shape[3]
        if numbers * call.q.element_size() > settings.max_body_bytes:
            raise Invalid.at("v", f"an answer has at most {settings.max_body_bytes} bytes, this has {numbers} numbers")


def admit_work(estimates: Sequence[Estimate], settings: Settings) -> None:
    """Refuse more work or memory than a request may take.

    Raises:
        Invalid: naming q.
    """
    whole = sum(estimates, Estimate(0, 0))
    limits = (
        ("multiply-adds", whole.multiply_adds, settings.max_attention_multiply_adds),
        ("bytes of memory", whole.memory, settings.max_attention_memory_bytes),
    )
    for unit, wanted, limit in limits:
        if wanted > limit:
            raise Invalid.at("q", f"at most {limit} {unit} a request, this may take {wanted}")


def check_json_answer(numbers: int, settings: Settings) -> None:
    """Refuse an answer of more numbers than JSON may have.

    Raises:
        Invalid: naming the header that asks for another form.
    """
    if numbers > settings.max_json_bytes // JSON_BYTES:
        raise Invalid.at("accept", f"{numbers} numbers are too many for JSON; ask for {safetensors.MEDIA_TYPE}")


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
