"""A session's state as a file: safetensors, versioned, with a checksum over everything in it."""

import json
from dataclasses import asdict
from typing import Any

import torch

from logitd.api.tensors import digest, to_torch, to_wire
from logitd.errors import Invalid
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor
from logitd_kernels.attention import Options
from logitd_kernels.attention.streams import Stream, StreamSetting, restore_stream
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError

VERSION = 1
_KEY = "logitd_stream"

Json = dict[str, Any]


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


def import_state(body: bytes | bytearray) -> tuple[Stream, int, float]:
    """Return the stream that `export_state` wrote, its step and its tolerance.

    Raises:
        Malformed: no safetensors.
        Invalid: not a stream, another version, or changed on the way.
    """
    tensors, metadata = safetensors.decode(body)
    try:
        told = json.loads(metadata[_KEY])
        version, checksum = told["version"], told.pop("sha256")
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Invalid.at(f"__metadata__.{_KEY}", "is not what an export of a session has") from None
    if version != VERSION:
        raise Invalid.at(f"__metadata__.{_KEY}.version", f"expected {VERSION}, got {str(version)[:20]}")
    if checksum != digest(told, tensors).hex():
        raise Invalid.at(f"__metadata__.{_KEY}.sha256", "does not match: the export was changed or damaged")
    return _restored(told, tensors), int(told["step"]), float(told["tolerance"])


def _restored(told: Json, tensors: dict[str, Tensor]) -> Stream:
    try:
        setting = told["setting"]
        modes = None if setting["modes"] is None else tuple(setting["modes"])
        setting = StreamSetting(**{**setting, "options": Options(**setting["options"]), "modes": modes})
        return restore_stream(setting, {**told["numbers"], **{name: to_torch(one) for name, one in tensors.items()}})
    except (ShapeError, ParameterError, NonFiniteTensor) as error:
        raise Invalid.at(error.field, error.message) from None
    except (KeyError, TypeError) as error:
        raise Invalid.at(f"__metadata__.{_KEY}", f"is not a stream of this version: {str(error)[:60]}") from None
