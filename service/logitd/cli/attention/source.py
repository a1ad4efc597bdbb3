"""Where `logitd attention` reads tensors: a file or standard input, safetensors or .npz, told apart by content."""

import io
import re
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from logitd.cli.failure import CannotRun
from logitd.errors import Malformed
from logitd.wire import safetensors

_ZIP_MAGIC = b"PK"
# What zipfile raises for a broken archive, and for a compression or a version that it does not know.
_UNREADABLE = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError)
_REQUIRED = ("q", "k", "v")
_OPTIONAL = ("mask", "lengths", "sink_logits")
_OF_LAYER = re.compile(r"([0-9]+)\.([qkv])")


def read_call(path: str) -> dict[str, Any]:
    """Read q, k and v, and mask, lengths and sink_logits where they are there; `-` is standard input.

    Raises:
        CannotRun: unreadable, or one of q, k and v is missing.
    """
    tensors = _read(path)
    missing = [name for name in _REQUIRED if name not in tensors]
    if missing:
        raise CannotRun(f"{path}: must hold q, k and v, found {_named(tensors)}")
    return {name: tensors[name] for name in (*_REQUIRED, *_OPTIONAL) if name in tensors}


def read_layers(path: str) -> dict[int, dict[str, Any]]:
    """Read the q, k and v of each layer, named `0.q`, `0.k`, `0.v`, `1.q` and so on; `-` is standard input.

    Raises:
        CannotRun: unreadable, or nothing is named so.
    """
    tensors = _read(path)
    layers: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if found := _OF_LAYER.fullmatch(name):
            layers.setdefault(int(found[1]), {})[found[2]] = tensor
    if not layers:
        raise CannotRun(f"{path}: must hold 0.q, 0.k, 0.v, 1.q …, found {_named(tensors)}")
    return layers


def _read(path: str) -> Mapping[str, Any]:
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror}") from error
    try:
        return _npz(content) if content.startswith(_ZIP_MAGIC) else safetensors.decode(content)[0]
    except Malformed as error:
        raise CannotRun(f"{path}: is neither .npz nor safetensors: {error}") from error
    except (ValueError, EOFError, *_UNREADABLE) as error:
        raise CannotRun(f"{path}: {error}") from error


def _npz(content: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _named(tensors: Mapping[str, Any]) -> str:
    return ", ".join(sorted(tensors)[:10]) or "nothing"
