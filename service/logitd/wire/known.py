"""Which tensors an endpoint knows: their names, and where and how JSON has them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logitd.errors import Invalid
from logitd.wire import json as wire_json
from logitd.wire import npy, safetensors
from logitd.wire.tensor import Tensor

MEDIA_TYPES = (wire_json.MEDIA_TYPE, safetensors.MEDIA_TYPE, npy.MEDIA_TYPE)
OBJECTS = ("head", "layers")  # that hold tensors in JSON

_Reader = Callable[[object, str], Tensor]


@dataclass(frozen=True)
class Tensors:
    """The tensors that an endpoint knows.

    Attributes:
        readers: for each path in JSON, the tensor's name and how nested lists are read.
        npy: the tensor that a .npy body is; None where a body must hold several.
        unpack: takes what JSON has in objects of its own out of the fields, and returns it by its paths.
        binary: whether there are tensors to be sent at all; JSON alone is understood where not.
    """

    readers: Mapping[str, tuple[str, _Reader]]
    npy: str | None = None
    unpack: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    binary: bool = True

    def reader(self, path: str) -> tuple[str, _Reader] | None:
        """Return the name of the tensor at a path in JSON, and how it is read; None where there is no tensor."""
        return self.readers.get(path)

    def json_path(self, name: str) -> str:
        """Return where JSON has what safetensors calls `name`."""
        paths = {tensor: path for path, (tensor, _) in self.readers.items()}
        if "head.ids" in self.readers:
            paths["vocab_size"] = "head.vocab_size"
        return paths.get(name, name)

    @property
    def media_types(self) -> tuple[str, ...]:
        """The content types that are understood."""
        return MEDIA_TYPES[: 1 + self.binary + bool(self.npy)]


class LayerTensors(Tensors):
    """q, k and v of several layers: `3.q` in safetensors, `layers.3.q` in JSON."""

    _PATH = re.compile(r"layers\.([0-9]{1,4})\.([qkv])")

    def reader(self, path: str) -> tuple[str, _Reader] | None:
        """Return the layer's tensor at a path, read four lists deep."""
        found = self._PATH.fullmatch(path)
        return (f"{found[1]}.{found[2]}", _four_deep) if found else None

    def json_path(self, name: str) -> str:
        """Return where JSON has a layer's tensor."""
        return f"layers.{name}" if self._PATH.fullmatch(f"layers.{name}") else name


def _from_head(fields: dict[str, Any]) -> dict[str, Any]:
    """Take `head` out of the fields and return what is in it by its paths; its vocab_size stays a field."""
    head = _object(fields, "head", "ids, logits, log_z and vocab_size")
    if head and "vocab_size" in fields:
        raise Invalid.at("vocab_size", "belongs into head")
    nested = {f"head.{name}": value for name, value in head.items()}
    if "head.vocab_size" in nested:
        fields["vocab_size"] = nested.pop("head.vocab_size")
    return nested


def _from_layers(fields: dict[str, Any]) -> dict[str, Any]:
    layers = _object(fields, "layers", "an object with q, k and v for each layer")
    owners = {name: _object(dict(layers), name, "q, k and v", f"layers.{name[:20]}") for name in layers}
    return {f"layers.{name}.{tensor}": value for name, own in owners.items() for tensor, value in own.items()}


def _object(fields: dict[str, Any], name: str, holds: str, path: str | None = None) -> dict[str, Any]:
    value = fields.pop(name, None)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Invalid.at(path or name, f"expected an object with {holds}")
    return value


def _four_deep(value: object, path: str) -> Tensor:
    return wire_json.float_tensor(value, path, 4)


def _three_deep(value: object, path: str) -> Tensor:
    return wire_json.float_tensor(value, path, 3)


def _vector_or_matrix(value: object, path: str) -> Tensor:
    nested = isinstance(value, list) and any(isinstance(item, list) for item in value)
    return wire_json.float_matrix(value, path) if nested else wire_json.float_vector(value, path)


ROWS = Tensors(
    {
        "logits": ("logits", wire_json.float_matrix),
        "mask": ("mask", wire_json.int_matrix),
        "prompt_ids": ("prompt_ids", wire_json.int_matrix),
        "output_ids": ("output_ids", wire_json.int_matrix),
        "guidance_logits": ("guidance_logits", wire_json.float_matrix),
        "head.ids": ("head_ids", wire_json.int_matrix),
        "head.logits": ("head_logits", wire_json.float_matrix),
        "head.log_z": ("log_z", _vector_or_matrix),
        "head.log_z_temperatures": ("log_z_temperatures", wire_json.float_vector),
        "head.finite_count": ("head_finite_count", wire_json.int_vector),
    },
    npy="logits",
    unpack=_from_head,
)
SCORE = Tensors(
    {
        **{path: reader for path, reader in ROWS.readers.items() if not path.startswith("head.")},
        "targets": ("targets", wire_json.int_vector),
    }
)
ATTENTION = Tensors(
    {
        **{name: (name, _four_deep) for name in ("q", "k", "v")},
        "mask": ("mask", wire_json.mask_tensor),
        "lengths": ("lengths", wire_json.int_vector),
        "sink_logits": ("sink_logits", wire_json.float_vector),
    }
)
VERIFY = Tensors(
    {
        "target_logits": ("target_logits", _three_deep),
        "draft_ids": ("draft_ids", wire_json.int_matrix),
        "draft_probs": ("draft_probs", _three_deep),
        "draft_logits": ("draft_logits", _three_deep),
        "draft_lengths": ("draft_lengths", wire_json.int_vector),
        "prompt_ids": ("prompt_ids", wire_json.int_matrix),
        "output_ids": ("output_ids", wire_json.int_matrix),
    }
)
FIELDS = Tensors({}, binary=False)
SESSION = Tensors({name: (name, _three_deep) for name in ("q", "k", "v")})
LAYERS = LayerTensors({}, unpack=_from_layers)
