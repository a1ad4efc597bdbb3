"""An infer answer onto the wire: JSON header, binary tensors behind it in the order of the outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from logitd.errors import Malformed
from logitd.wire import json as wire_json
from logitd.wire.oip.datatypes import BINARY_ONLY, NAMES, to_json
from logitd.wire.tensor import Tensor

BINARY_MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True)
class Output:
    """An output: a tensor of numbers, or one text of shape [1], which is BYTES."""

    name: str
    value: Tensor | bytes

    @property
    def datatype(self) -> str:
        """The protocol's name of what it holds."""
        return "BYTES" if isinstance(self.value, bytes) else NAMES[self.value.dtype]

    @property
    def shape(self) -> list[int]:
        """Its dimensions, outermost first."""
        return [1] if isinstance(self.value, bytes) else list(self.value.shape)

    @property
    def chunks(self) -> list[bytes | memoryview]:
        """Its bytes on the wire."""
        if isinstance(self.value, bytes):
            return [len(self.value).to_bytes(4, "little"), self.value]
        return [self.value.data]

    @property
    def byte_size(self) -> int:
        """How many bytes those are."""
        return sum(len(chunk) for chunk in self.chunks)

    def listed(self, path: str) -> list[Any]:
        """Return its elements as a flat JSON list.

        Raises:
            Malformed: it has no JSON form.
        """
        if isinstance(self.value, bytes):
            return [self.value.decode()]
        if self.datatype in BINARY_ONLY:
            raise Malformed.at(path, f"{self.name} is {self.datatype}, which has no JSON form: ask for binary_data")
        return to_json(self.value)


@dataclass(frozen=True)
class Sent:
    """An output and how it goes: `json`, `binary`, or already `placed` in shared memory."""

    output: Output
    how: str
    path: str = "outputs"


@dataclass(frozen=True)
class Encoded:
    """An answer's body, and how many of its bytes are JSON; None where all are."""

    body: bytes
    json_bytes: int | None

    @property
    def media_type(self) -> str:
        """The content type of the body."""
        return wire_json.MEDIA_TYPE if self.json_bytes is None else BINARY_MEDIA_TYPE


def encode(model: str, version: str, request_id: str, sent: Sequence[Sent]) -> Encoded:
    """Return the body of an answer.

    Only binary outputs have `parameters`: Triton's C++ client expects the size of binary data in them.

    Raises:
        Malformed: an output that has no JSON form is to go as JSON.
    """
    header: dict[str, Any] = {"model_name": model, "model_version": version}
    if request_id:
        header["id"] = request_id
    header["outputs"] = [_entry(one) for one in sent]
    text = orjson.dumps(header)
    chunks = [chunk for one in sent if one.how == "binary" for chunk in one.output.chunks]
    return Encoded(b"".join([text, *chunks]), len(text) if any(map(len, chunks)) else None)


def _entry(sent: Sent) -> dict[str, Any]:
    output = sent.output
    entry: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
    if sent.how == "binary":
        entry["parameters"] = {"binary_data_size": output.byte_size}
    elif sent.how == "json":
        entry["data"] = output.listed(sent.path)
    return entry
