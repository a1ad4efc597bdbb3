"""What the clients send for attention: each method's arguments as one HTTP request, built without any I/O."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from logitd.client.arrays import floats_of, tensor_of
from logitd.client.attention_answer import read_attention, read_comparison, read_plan
from logitd.client.attention_results import AttentionResult, Comparison
from logitd.client.events import Listener, Progress
from logitd.client.request import BINARY, Call, Parameters, body_of
from logitd.wire.tensor import Tensor

Layer = Mapping[str, object] | Sequence[object]

_NAMES = ("q", "k", "v")


def attention_call(
    q: object, k: object, v: object, *, extras: Mapping[str, object], fields: Parameters
) -> Call[AttentionResult]:
    """Build POST /v1/attention; `extras` are mask, lengths and sink_logits, None where they are not sent.

    Raises:
        TypeError, ValueError: what cannot be sent at all; the service judges the rest.
    """
    tensors, batched = _tensors((q, k, v), extras)
    read = partial(read_attention, batched=batched)
    return Call("POST", "/v1/attention", BINARY, body_of(tensors, fields), True, read)


def compare_call(
    q: object, k: object, v: object, *, extras: Mapping[str, object], fields: Parameters, progress: Progress | None
) -> Call[Comparison]:
    """Build POST /v1/attention/compare. The answer comes as events, so that a long comparison is no silence.

    Raises:
        TypeError, ValueError: what cannot be sent at all.
    """
    tensors, _ = _tensors((q, k, v), extras)
    headers = {**BINARY, "accept": "text/event-stream"}
    listen = partial(Listener, progress)
    return Call("POST", "/v1/attention/compare", headers, body_of(tensors, fields), True, read_comparison, listen)


def plan_call(layers: Mapping[int, Layer], fields: Parameters) -> Call[dict[str, Any]]:
    """Build POST /v1/attention/plan.

    Raises:
        TypeError, ValueError: what cannot be sent at all.
    """
    tensors: dict[str, Tensor] = {}
    for layer, own in layers.items():
        sent, _ = _tensors(_three(layer, own), {}, f"{layer}.")
        tensors |= sent
    headers = {**BINARY, "accept": "application/json"}
    return Call("POST", "/v1/attention/plan", headers, body_of(tensors, fields), True, read_plan)


def _tensors(
    arrays: Sequence[object], extras: Mapping[str, object], prefix: str = ""
) -> tuple[dict[str, Tensor], bool]:
    """Return the tensors by their names on the wire, and whether they had a batch of their own."""
    three = {prefix + name: _heads(prefix + name, array) for name, array in zip(_NAMES, arrays, strict=True)}
    ranks = {len(tensor.shape) for tensor in three.values()}
    if len(ranks) > 1:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in three.items())
        raise ValueError(f"expected a batch in all of q, k and v or in none, got {shapes}")
    batched = ranks == {4}
    if not batched:
        three = {name: Tensor(each.dtype, (1, *each.shape), each.data) for name, each in three.items()}
    return {**three, **{name: tensor_of(array) for name, array in extras.items() if array is not None}}, batched


def _heads(name: str, array: object) -> Tensor:
    """View q, k or v as a float tensor of three or four dimensions."""
    tensor = floats_of(name, array)
    if len(tensor.shape) not in (3, 4):
        raise ValueError(f"{name} must have shape [batch, heads, length, dim], got {list(tensor.shape)}")
    return tensor


def _three(layer: int, own: Layer) -> Sequence[object]:
    if isinstance(own, Mapping):
        if set(own) != set(_NAMES):
            raise ValueError(f"layer {layer} must have q, k and v, got {', '.join(map(str, own)) or 'nothing'}")
        return [own[name] for name in _NAMES]
    if len(own) != len(_NAMES):
        raise ValueError(f"layer {layer} must have q, k and v, got {len(own)} tensors")
    return own
