"""What the clients send for streaming sessions: each method's arguments as one HTTP request, built without any I/O."""

import json
from collections.abc import Mapping
from functools import partial

from logitd.client.arrays import floats_of
from logitd.client.reading import Json
from logitd.client.request import BINARY, Call, Parameters, body_of, plain
from logitd.client.session_answer import (
    Opened,
    Output,
    Step,
    read_export,
    read_nothing,
    read_opened,
    read_query,
    read_shown,
    read_step,
)
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

_PATH = "/v1/attention/sessions"
_JSON = {"accept": "application/json"}


def open_call(fields: Parameters) -> Call[Opened]:
    """Build the request that opens a session. It may run twice: a session that nobody knows of expires by itself.

    Raises:
        TypeError: a field without a form in JSON.
    """
    body = json.dumps(plain("request", fields), allow_nan=False).encode()
    return Call("POST", _PATH, {**_JSON, "content-type": "application/json"}, body, True, read_opened)


def import_call(exported: bytes) -> Call[Opened]:
    """Build the request that opens a session from an export; it may run twice, as `open_call` may."""
    headers = {**_JSON, "content-type": safetensors.MEDIA_TYPE}
    return Call("POST", f"{_PATH}/import", headers, exported, True, read_opened)


def append_call(session: str, step: int, k: object, v: object, q: object) -> Call[Step]:
    """Build the request that appends tokens, as the step of that number: taken in once however often it is sent.

    Raises:
        TypeError, ValueError: what cannot be sent at all; the service judges the rest.
    """
    tensors, several = _tensors({"k": k, "v": v} | ({} if q is None else {"q": q}))
    body = body_of(tensors, {"step": step})
    return Call("POST", f"{_PATH}/{session}/append", BINARY, body, True, partial(read_step, several=several))


def query_call(session: str, q: object) -> Call[Output]:
    """Build the request that asks of everything so far.

    Raises:
        TypeError, ValueError: what cannot be sent at all.
    """
    tensors, several = _tensors({"q": q})
    body = body_of(tensors, {})
    return Call("POST", f"{_PATH}/{session}/query", BINARY, body, True, partial(read_query, several=several))


def show_call(session: str) -> Call[Json]:
    """Build the request for what a session is."""
    return Call("GET", f"{_PATH}/{session}", _JSON, b"", True, read_shown)


def export_call(session: str) -> Call[bytes]:
    """Build the request for a session's state."""
    return Call("GET", f"{_PATH}/{session}/export", {"accept": safetensors.MEDIA_TYPE}, b"", True, read_export)


def delete_call(session: str) -> Call[None]:
    """Build the request that ends a session."""
    return Call("DELETE", f"{_PATH}/{session}", _JSON, b"", True, read_nothing)


def _tensors(arrays: Mapping[str, object]) -> tuple[dict[str, Tensor], bool]:
    """Return the tensors, [H, T, d], and whether they had a dimension for tokens of their own."""
    tensors = {name: floats_of(name, array) for name, array in arrays.items()}
    ranks = {len(tensor.shape) for tensor in tensors.values()}
    if ranks not in ({2}, {3}):
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"expected [heads, tokens, dim], or [heads, dim] of one token in all of them, got {shapes}")
    several = ranks == {3}
    if not several:
        tensors = {name: Tensor(one.dtype, (one.shape[0], 1, one.shape[1]), one.data) for name, one in tensors.items()}
    return tensors, several
