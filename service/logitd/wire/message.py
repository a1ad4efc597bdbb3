"""A request off the wire: tensors by name and the remaining fields, whatever form they came in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from logitd.errors import Invalid, Malformed, PayloadTooLarge, UnsupportedMedia
from logitd.wire import json as wire_json
from logitd.wire import npy, safetensors
from logitd.wire.known import OBJECTS, ROWS, Tensors
from logitd.wire.tensor import Tensor

Form = Literal["json", "safetensors", "npy", "oip"]


@dataclass(frozen=True)
class Message:
    """One request.

    Attributes:
        fields: everything that is not a tensor.
        tensors: by the names of the safetensors form; JSON's `head` is unpacked into them.
        form: how it was sent; paths in errors follow it.
        known: the tensors of the endpoint.
    """

    fields: dict[str, Any]
    tensors: dict[str, Tensor]
    form: Form
    known: Tensors = ROWS

    def path(self, field: str) -> str:
        """Return where the caller wrote a field that is known by its tensor name, subscripts kept."""
        if self.form == "npy":
            return field.removeprefix("params.")  # its parameters are the query string itself
        name, bracket, rest = field.partition("[")
        return (self.known.json_path(name) if self.form == "json" else name) + bracket + rest


class Undecoded:
    """A body as it was received; calling it, on whatever thread, decodes it by its content type.

    Args:
        content_type: as it was sent.
        body: all of it.
        query: of the URL.
        max_json_bytes: most of JSON.
        known: the tensors of the endpoint.

    Attributes:
        is_binary: whether it says that it is no JSON.
        is_bare_safetensors: whether it says that it is safetensors, and the URL says nothing more.
    """

    def __init__(
        self,
        content_type: str | None,
        body: memoryview,
        query: Sequence[tuple[str, str]],
        max_json_bytes: int,
        known: Tensors = ROWS,
    ) -> None:
        self.body = body
        self._media_type = (content_type or "").partition(";")[0].strip().lower()
        self._query, self._max_json_bytes, self._known = query, max_json_bytes, known
        self.is_binary = content_type is not None and "json" not in content_type.lower()
        self.is_bare_safetensors = self._media_type == safetensors.MEDIA_TYPE and not query

    def __call__(self) -> Message:
        """Decode it.

        Raises:
            UnsupportedMedia, Malformed, Invalid, PayloadTooLarge.
        """
        known, media_type = self._known, self._media_type
        if media_type not in known.media_types:
            got = repr(media_type[:60]) if media_type else "none"
            raise UnsupportedMedia.at("content-type", f"expected one of {', '.join(known.media_types)}, got {got}")
        if not self.body:
            raise Malformed.at("body", "is empty")
        if self._query and media_type != npy.MEDIA_TYPE:
            raise Invalid.at(self._query[0][0], f"query parameters go with {npy.MEDIA_TYPE} bodies only")
        if media_type == wire_json.MEDIA_TYPE:
            return _from_json(self.body, self._max_json_bytes, known)
        if media_type == safetensors.MEDIA_TYPE:
            return _from_safetensors(self.body, known)
        assert known.npy is not None
        return Message(_from_query(self._query), {known.npy: npy.decode(self.body)}, "npy", known)


def _from_json(body: bytes | bytearray | memoryview, max_json_bytes: int, known: Tensors) -> Message:
    if len(body) > max_json_bytes:
        raise PayloadTooLarge.at("body", f"JSON is capped at {max_json_bytes} bytes, got {len(body)}; send safetensors")
    fields = wire_json.parse(body)
    tensors = {}
    nested = known.unpack(fields) if known.unpack else {}
    for path in (*fields, *nested):
        if reader := known.reader(path):
            name, read = reader
            value = fields.pop(path) if path in fields else nested.pop(path)
            if value is not None:
                tensors[name] = read(value, path)
    if nested:
        raise Invalid.at(next(iter(nested)), "unknown field")
    return Message(fields, tensors, "json", known)


def _from_safetensors(body: bytes | bytearray | memoryview, known: Tensors) -> Message:
    tensors, metadata = safetensors.decode(body, wire_json.canonical)
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
    clash = {name for name in fields if known.reader(name) or name in OBJECTS}
    if clash:
        raise Invalid.at(f"request.{min(clash)}", "must be a tensor in a safetensors body")
    return Message(fields, tensors, "safetensors", known)


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
