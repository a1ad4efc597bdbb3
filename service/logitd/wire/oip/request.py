"""An infer request off the wire: framing and header checked, tensors cut out of the body without a copy."""

import re
from dataclasses import dataclass, field

from logitd.errors import Malformed, PayloadTooLarge
from logitd.wire import json as wire_json
from logitd.wire.oip.entries import Parameter, SharedPlace, WantedOutput, entries_of, natural, parameters_of, text_of
from logitd.wire.oip.inputs import Input, input_of
from logitd.wire.tensor import Tensor

HEADER_LENGTH = "inference-header-content-length"

_LENGTH = re.compile(r"[0-9]{1,10}")
_ITEM_BYTES = 4


@dataclass(frozen=True)
class InferRequest:
    """One infer request.

    Attributes:
        id: to be repeated in the answer; empty for none.
        parameters: of the request, the protocol's own taken out.
        inputs: by name, in the order in which they were sent.
        outputs: what is asked for; None for every output.
        binary_outputs: whether outputs that are not listed come as binary data.
        timeout_microseconds: how long the caller waits; None or 0 is no limit of its own.
        priority: 1 is the highest, 0 the default.
    """

    inputs: dict[str, Input]
    id: str = ""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    outputs: tuple[WantedOutput, ...] | None = None
    binary_outputs: bool = False
    timeout_microseconds: int | None = None
    priority: int = 0

    @property
    def places(self) -> list[SharedPlace]:
        """Every place in shared memory that the request names."""
        shared = [one.content for one in self.inputs.values() if isinstance(one.content, SharedPlace)]
        return shared + [output.place for output in self.outputs or () if output.place is not None]


def header_length(values: list[str], body_bytes: int) -> int | None:
    """Return how many bytes of the body are the JSON header; None where all of it is.

    Raises:
        Malformed: the header field is there twice, is no whole number, or exceeds the body.
    """
    if not values:
        return None
    if len(values) > 1:
        raise Malformed.at(HEADER_LENGTH, "is there twice")
    if not _LENGTH.fullmatch(values[0]):
        raise Malformed.at(HEADER_LENGTH, f"expected a whole number, got {values[0][:40]!r}")
    length = int(values[0])
    if length > body_bytes:
        raise Malformed.at(HEADER_LENGTH, f"inference header size should be in range [0, {body_bytes}], got {length}")
    return length


def parse(body: memoryview, json_bytes: int | None, max_json_bytes: int) -> InferRequest:
    """Read an infer request.

    Args:
        body: the whole body, decompressed.
        json_bytes: as `header_length` returns it; not 0, which is `raw`.
        max_json_bytes: the largest JSON header.
    Raises:
        Malformed, PayloadTooLarge: naming the entry of the header.
    """
    header, data = (body, body[len(body) :]) if json_bytes is None else (body[:json_bytes], body[json_bytes:])
    if len(header) > max_json_bytes:
        raise PayloadTooLarge.at(
            "body", f"a JSON header is capped at {max_json_bytes} bytes, got {len(header)}; send binary tensors"
        )
    if not len(header):
        raise Malformed.at("body", "is empty")
    fields = wire_json.parse(header)
    own = parameters_of(fields.get("parameters"), "parameters")
    inputs = _inputs(fields.get("inputs"), data)
    wanted = entries_of(fields.get("outputs"), "outputs")
    outputs = tuple(WantedOutput.of(name, entry, path) for name, entry, path in wanted) if wanted else None
    return InferRequest(
        inputs=inputs,
        id=text_of(fields.get("id"), "id"),
        binary_outputs=_flag(own, "binary_data_output"),
        timeout_microseconds=_unsigned(own, "timeout"),
        priority=_unsigned(own, "priority") or 0,
        parameters={name: value for name, value in own.items() if name not in _PROTOCOL},
        outputs=outputs,
    )


def raw(body: memoryview, name: str) -> InferRequest:
    """Read a body that is nothing but one row of FP32, as a header length of 0 says; outputs come as binary data.

    Raises:
        Malformed: empty, or not a whole number of elements.
    """
    if not len(body) or len(body) % _ITEM_BYTES:
        raise Malformed.at(name, f"a raw body is one row of FP32, {_ITEM_BYTES} bytes each, got {len(body)} bytes")
    shape = (1, len(body) // _ITEM_BYTES)
    return InferRequest({name: Input(name, "FP32", shape, Tensor("F32", shape, body))}, binary_outputs=True)


_PROTOCOL = (
    "binary_data_output",
    "timeout",
    "priority",
    "sequence_id",
    "sequence_start",
    "sequence_end",
)


def _inputs(sent: object, data: memoryview) -> dict[str, Input]:
    entries = entries_of(sent, "inputs")
    if not entries:
        raise Malformed.at("inputs", "at least one input is required")
    inputs: dict[str, Input] = {}
    used = 0
    for name, entry, path in entries:
        inputs[name], taken = input_of(name, entry, path, data[used:])
        used += taken
    if used != len(data):
        raise Malformed.at("body", f"unexpected additional input data: {len(data) - used} bytes behind the last input")
    return inputs


def _flag(parameters: dict[str, Parameter], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise Malformed.at(f"parameters.{name}", "must be true or false")
    return value


def _unsigned(parameters: dict[str, Parameter], name: str) -> int | None:
    return natural(parameters[name], f"parameters.{name}") if name in parameters else None
