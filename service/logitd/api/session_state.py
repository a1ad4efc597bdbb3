"""A session's state as a file: safetensors, versioned, with a checksum over everything in it.

The checksum tells damage, not intent: whoever can write a file can write its checksum. So a file is believed nothing.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from logitd.api.attention_schemas import SessionFields
from logitd.api.schemas import check
from logitd.api.tensors import digest, to_torch, to_wire
from logitd.errors import Invalid
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor
from logitd_kernels.attention import Options
from logitd_kernels.attention.streams import Stream, StreamSetting, needed_bytes, restore_stream
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError

VERSION = 1
_KEY = "logitd_stream"
_PATH = f"__metadata__.{_KEY}"
_PARTS = {"version", "setting", "numbers", "step", "tolerance"}
_MAX_STEP, _MAX_CHUNK = 1 << 53, 4096

Json = dict[str, Any]


@dataclass(frozen=True)
class State:
    """A session's state as it was read; its tensors are not checked before `stream` builds from them.

    Attributes:
        setting: of the stream.
        flat: what it holds.
        step: how many steps it has behind it.
        tolerance: relative error that a head may have.
    """

    setting: StreamSetting
    flat: Json
    step: int
    tolerance: float

    @property
    def needed(self) -> int:
        """The bytes that the stream will keep.

        Raises:
            Invalid: no stream has such a setting.
        """
        try:
            return needed_bytes(self.setting, self.flat)
        except ParameterError as error:
            raise Invalid.at(f"{_PATH}.setting.{error.field}", error.message) from None

    def stream(self) -> Stream:
        """Return the stream, continuing on the same bits.

        Raises:
            Invalid: naming the tensor or number that is no part of such a stream.
        """
        try:
            return restore_stream(self.setting, self.flat)
        except (ShapeError, ParameterError, NonFiniteTensor) as error:
            raise Invalid.at(error.field, error.message) from None


def export_state(stream: Stream, step: int, tolerance: float) -> bytes:
    """Return everything that continuing needs."""
    flat = stream.export()
    tensors = {name: to_wire(value) for name, value in flat.items() if isinstance(value, torch.Tensor)}
    numbers = {name: value for name, value in flat.items() if not isinstance(value, torch.Tensor)}
    told = {
        "version": VERSION,
        "setting": asdict(stream.setting),
        "numbers": numbers,
        "step": step,
        "tolerance": tolerance,
    }
    told["sha256"] = digest(told, tensors).hex()
    return b"".join(safetensors.encode(tensors, {_KEY: json.dumps(told)}))


def import_state(body: bytes | bytearray) -> State:
    """Read what `export_state` wrote; nothing is allocated by what it says.

    Raises:
        Malformed: no safetensors.
        Invalid: not a stream, another version, changed on the way, or a setting that no session can be opened with.
    """
    tensors, metadata = safetensors.decode(body)
    told = _told(metadata, tensors)
    setting = _setting(told["setting"], told["tolerance"])
    step, numbers = told["step"], told["numbers"]
    if type(step) is not int or not 0 <= step < _MAX_STEP:
        raise Invalid.at(f"{_PATH}.step", "must be an integer from 0 to 2^53 - 1")
    if not isinstance(numbers, dict) or not numbers.keys().isdisjoint(tensors):
        raise Invalid.at(f"{_PATH}.numbers", "must be an object of what is no tensor")
    flat = {**numbers, **{name: to_torch(tensor) for name, tensor in tensors.items()}}
    return State(setting, flat, step, float(told["tolerance"]))


def _told(metadata: dict[str, str], tensors: dict[str, Tensor]) -> Json:
    """Return the JSON part, of this version and with the right checksum."""
    try:
        told: Json = json.loads(metadata[_KEY])
        version, checksum = told["version"], told.pop("sha256")
        found = digest(told, tensors).hex()
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise Invalid.at(_PATH, "is not what an export of a session has") from None
    if type(version) is not int or version != VERSION:
        raise Invalid.at(f"{_PATH}.version", f"expected {VERSION}, got {str(version)[:20]}")
    if checksum != found:
        raise Invalid.at(f"{_PATH}.sha256", "does not match: the export was changed or damaged")
    if told.keys() != _PARTS:
        raise Invalid.at(_PATH, f"expected {', '.join(sorted(_PARTS))}")
    return told


def _setting(told: object, tolerance: object) -> StreamSetting:
    """Return the setting, within the bounds that a session is opened with."""
    options = told.get("options") if isinstance(told, dict) else None
    for path, part, kind in ((f"{_PATH}.setting", told, StreamSetting), (f"{_PATH}.setting.options", options, Options)):
        names = [one.name for one in fields(kind)]
        if not isinstance(part, dict) or part.keys() != set(names):
            raise Invalid.at(path, f"expected an object of {', '.join(names)}")
    assert isinstance(told, dict)
    assert isinstance(options, dict)
    own = {name: value for name, value in told.items() if name != "options"}
    chunk = options["chunk"]
    if type(chunk) is not int or not 1 <= chunk <= _MAX_CHUNK:
        raise Invalid.at(f"{_PATH}.setting.options.chunk", f"must be an integer from 1 to {_MAX_CHUNK}")
    shared = {name: value for name, value in options.items() if name != "chunk"}
    checked = check(SessionFields, {**own, **shared, "tolerance": tolerance}, lambda path: f"{_PATH}.{path}")
    if checked.kv_heads is None or checked.value_dim is None:
        raise Invalid.at(f"{_PATH}.setting", "kv_heads and value_dim must be integers")
    modes = None if checked.modes is None else tuple(checked.modes)
    try:
        return StreamSetting(**{**own, "scale": checked.scale, "options": Options(**options), "modes": modes})
    except ParameterError as error:
        raise Invalid.at(f"{_PATH}.setting.{error.field}", error.message) from None
