"""One request as data, and the forms of what goes into it; nothing here does I/O."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from logitd.client.events import Listener
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

Parameters = Mapping[str, Any]
Answer = TypeVar("Answer")

BINARY = {"content-type": safetensors.MEDIA_TYPE, "accept": safetensors.MEDIA_TYPE}


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request, and how to read its answer.

    Attributes:
        method, path, headers, body: of the request.
        repeatable: it may run twice and answer the same.
        read: reads the body of the answer.
        listen: where the answer comes as events: makes what reads them, anew for each try.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    repeatable: bool
    read: Callable[[bytes], Answer]
    listen: Callable[[], Listener] | None = None


def body_of(tensors: Mapping[str, Tensor], fields: Parameters) -> bytes:
    """Return a safetensors body.

    Raises:
        TypeError: a field without a form in JSON.
    """
    return b"".join(safetensors.encode(tensors, {"request": json.dumps(plain("request", fields), allow_nan=False)}))


def plain(path: str, value: Any) -> Any:  # noqa: ANN401
    """Return a value in JSON types; NaN and infinities as strings, which the service names in its own words.

    Raises:
        TypeError: a value without a form in JSON; `path` says where it stands.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(f"{path}.{key}", item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and scalars, torch tensors
        return plain(path, value.tolist())
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [plain(f"{path}[{index}]", item) for index, item in enumerate(value)]
    raise TypeError(f"{path}: {type(value).__name__} has no form in JSON")
