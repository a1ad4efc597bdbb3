"""A request off the wire: tensors by name and the remaining fields, whatever form they came in."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from logitd.errors import Invalid, Malformed, PayloadTooLarge, UnsupportedMedia
from logitd.wire import json as wire_json
from logitd.wire import npy, safetensors
from logitd.wire.tensor import Tensor

MEDIA_TYPES = (wire_json.MEDIA_TYPE, safetensors.MEDIA_TYPE, npy.MEDIA_TYPE)

Form = Literal["json", "safetensors", "npy"]

_Reader = Callable[[object, str], Tensor]
_READERS: dict[str, tuple[str, _Reader]] = {
    "logits": ("logits", wire_json.float_matrix),
    "mask": ("mask", wire_json.int_matrix),
    "head.ids": ("head_ids", wire_json.int_matrix),
    "head.logits": ("head_logits", wire_json.float_matrix),
    "head.log_z": ("log_z", lambda value, path: _vector_or_matrix(value, path)),
    "head.log_z_temperatures": ("log_z_temperatures", wire_json.float_vector),
    "head.finite_count": ("head_finite_count", wire_json.int_vector),
}
_JSON_PATHS = {tensor: path for path, (tensor, _) in _READERS.items()} | {"vocab_size": "head.vocab_size"}


@dataclass(frozen=True)
class Message:
    """One request.

    Attributes:
        fields: everything that is not a tensor.
        tensors: by the names of the safetensors form; JSON's `head` is unpacked into them.
        form: how it was sent; paths in errors follow it.
    """

    fields: dict[str, Any]
    tensors: dict[str, Tensor]
    form: Form

    def path(self, field: str) -> str:
        """Return where the caller wrote a field that is known by its tensor name, subscripts kept."""
        if self.form == "npy":
            return field.removeprefix("params.")  # its parameters are the query string itself
        name, bracket, rest = field.partition("[")
        return (_JSON_PATHS.get(name, name) if self.form == "json" else name) + bracket + rest


def decode(content_type: str | None, body: bytearray, query: Sequence[tuple[str, str]], max_json_bytes: int) -> Message:
    """Decode a body by its content type.

    Raises:
        UnsupportedMedia, Malformed, Invalid, PayloadTooLarge.
    """
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if not body and media_type in MEDIA_TYPES:
        raise Malformed.at("body", "is empty")
    if query and media_type != npy.MEDIA_TYPE:
        raise Invalid.at(query[0][0], f"query parameters go with {npy.MEDIA_TYPE} bodies only")
    if media_type == wire_json.MEDIA_TYPE:
        return _from_json(body, max_json_bytes)
    if media_type == safetensors.MEDIA_TYPE:
        return _from_safetensors(body)
    if media_type == npy.MEDIA_TYPE:
        return Message(_from_query(query), {"logits": npy.decode(body)}, "npy")
    got = repr(media_type[:60]) if media_type else "none"
    raise UnsupportedMedia.at("content-type", f"expected one of {', '.join(MEDIA_TYPES)}, got {got}")


def _from_json(body: bytearray, max_json_bytes: int) -> Message:
    if len(body) > max_json_bytes:
        raise PayloadTooLarge.at("body", f"JSON is capped at {max_json_bytes} bytes, got {len(body)}; send safetensors")
    fields = wire_json.parse(body)
    tensors = {}
    head = fields.pop("head", None)
    if head is not None and not isinstance(head, dict):
        raise Invalid.at("head", "expected an object with ids, logits, log_z and vocab_size")
    if "vocab_size" in fields:
        raise Invalid.at("vocab_size", "belongs into head")
    nested = {f"head.{name}": value for name, value in (head or {}).items()}
    if "head.vocab_size" in nested:
        fields["vocab_size"] = nested.pop("head.vocab_size")
    for path in [name for name in (*fields, *nested) if name in _READERS]:
        name, read = _READERS[path]
        value = fields.pop(path) if path in fields else nested.pop(path)
        if value is not None:
            tensors[name] = read(value, path)
    if nested:
        raise Invalid.at(next(iter(nested)), "unknown field")
    return Message(fields, tensors, "json")


def _from_safetensors(body: bytearray) -> Message:
    tensors, metadata = safetensors.decode(body)
    unknown = set(metadata) - {"request", "format"}  # `format` is what savers of the library add
    if unknown:
        raise Invalid.at(
            f"__metadata__.{min(unknown)[:60]}", "unknown; parameters go into __metadata__.request as JSON"
        )
    try:
        fields = wire_json.parse(metadata.get("request", "{}").encode())
    except (UnicodeEncodeError, Malformed) as error:
        detail = error.fields[0].message if isinstance(error, Malformed) else "is not Unicode"
        raise Malformed.at("__metadata__.request", detail) from None
    clash = set(fields) & set(_READERS) | set(fields) & {"head"}
    if clash:
        raise Invalid.at(f"request.{min(clash)}", "must be a tensor in a safetensors body")
    return Message(fields, tensors, "safetensors")


def _from_query(query: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a query string: values are JSON where they parse as it, else strings."""
    fields: dict[str, Any] = {}
    for name, text in query:
        if name in fields:
            raise Invalid.at(name[:60], "is there twice")
        try:
            fields[name] = json.loads(text)
        except (ValueError, RecursionError):
            fields[name] = text
    return fields


def _vector_or_matrix(value: object, path: str) -> Tensor:
    nested = isinstance(value, list) and any(isinstance(item, list) for item in value)
    return wire_json.float_matrix(value, path) if nested else wire_json.float_vector(value, path)
