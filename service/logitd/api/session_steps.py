"""Steps of a session: tokens taken in, and questions asked of what it keeps."""

from collections.abc import Callable
from typing import Any

import torch
from fastapi import APIRouter, Request, Response

from logitd.api.answers import encode_json, encode_safetensors, wants_safetensors
from logitd.api.attention_schemas import QUERY_SCHEMA, STEP_SCHEMA, StepFields
from logitd.api.handler import answer
from logitd.api.problems import responses
from logitd.api.requests import named, only
from logitd.api.schemas import check, json_body, request_body
from logitd.api.tensors import digest, to_torch, to_wire
from logitd.attending import Attending
from logitd.engine import Stages
from logitd.errors import Conflict, Gone, Invalid, NotFound, Unavailable
from logitd.sessions import Session, Sessions
from logitd.settings import Settings
from logitd.wire.known import SESSION
from logitd.wire.message import Message
from logitd_kernels.errors import NonFiniteTensor

Json = dict[str, Any]
Finish = Callable[[Json], bytes]

PATH = "/attention/sessions/{session_id}"
router = APIRouter(prefix="/v1", tags=["attention sessions"])

_STEP = json_body(StepFields, STEP_SCHEMA, ["k", "v"])
_QUERY = {"type": "object", "additionalProperties": False, "properties": QUERY_SCHEMA, "required": ["q"]}


@router.post(
    f"{PATH}/append",
    responses=responses(NotFound, Gone, Conflict, Unavailable),
    openapi_extra=request_body(_STEP, SESSION),
)
async def append(request: Request, session_id: str) -> Response:
    """Take in tokens, and answer the queries of the last of them, if they come along."""
    sessions: Sessions = request.app.state.sessions
    session = sessions.get(session_id)
    settings: Settings = request.app.state.settings
    binary = wants_safetensors(request.headers.get("accept", ""))

    def work(message: Message, stages: Stages) -> Finish:
        with stages("decode"):
            fields = check(StepFields, message.fields)
            tensors = _tensors(message, ("k", "v"), ("q",))
            body = digest({"binary": binary}, message.tensors)
        with session.lock:
            reply = session.begin(fields.step, body)
            if reply is None:
                with stages("compute"):
                    _admit(session, tensors, settings)
                    output = named(message, lambda: _taken_in(sessions, session, tensors))
                with stages("encode"):
                    reply = _reply(session, output, binary, session.step + 1)(stages.seconds)
                    session.end(reply, body)
        return lambda seconds: reply

    attending: Attending = request.app.state.attending
    with attending.admitted():
        return await answer(request, work, binary, SESSION, attending)


@router.post(
    f"{PATH}/query", responses=responses(NotFound, Gone, Unavailable), openapi_extra=request_body(_QUERY, SESSION)
)
async def query(request: Request, session_id: str) -> Response:
    """Ask of everything that a session has taken in; it does not change."""
    sessions: Sessions = request.app.state.sessions
    session = sessions.get(session_id)
    settings: Settings = request.app.state.settings
    binary = wants_safetensors(request.headers.get("accept", ""))

    def work(message: Message, stages: Stages) -> Finish:
        with stages("decode"):
            check(StepFields, message.fields)
            tensors = _tensors(message, ("q",), ())
        with stages("compute"), session.lock:
            _admit(session, tensors, settings)
            output = named(message, lambda: session.stream.read(tensors["q"]))
            return _reply(session, output, binary, step=session.step)

    attending: Attending = request.app.state.attending
    with attending.admitted():
        return await answer(request, work, binary, SESSION, attending)


def _tensors(message: Message, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, torch.Tensor]:
    only(message, (*required, *optional))
    for name in required:
        if name not in message.tensors:
            raise Invalid.at(name, "is required")
    tensors = {}
    for name, tensor in message.tensors.items():
        read = to_torch(tensor)
        if not read.dtype.is_floating_point:
            raise Invalid.at(name, f"expected floating point, got {tensor.dtype}")
        tensors[name] = read.float()
        bad = ~torch.isfinite(tensors[name])
        if bad.any():
            index = [int(one) for one in bad.nonzero()[0]]
            raise Invalid.at(name, NonFiniteTensor(name, index, float(tensors[name][tuple(index)])).message)
    return tensors


def _taken_in(sessions: Sessions, session: Session, tensors: dict[str, torch.Tensor]) -> torch.Tensor | None:
    q, k, v = tensors.get("q"), tensors["k"], tensors["v"]
    session.stream.setting.check(q, k, v)
    sessions.check_growth(session, session.stream.growth(k.shape[1]))
    return session.stream.attend(q, k, v)


def _admit(session: Session, tensors: dict[str, torch.Tensor], settings: Settings) -> None:
    """Refuse more work than one request may be, as if attention were exact."""
    setting = session.stream.setting
    queries, more = (tensors[name].shape[-2] if name in tensors else 0 for name in ("q", "k"))
    work = setting.heads * queries * (session.stream.tokens + more) * (setting.dim + setting.value_dim)
    limit = settings.max_attention_multiply_adds
    if work > limit:
        raise Invalid.at("q", f"at most {limit} multiply-adds a request, exact attention would be {work}")


def _reply(session: Session, output: torch.Tensor | None, binary: bool, step: int) -> Finish:
    state = {"step": step, "tokens": session.stream.tokens, "state_bytes": session.stream.bytes}
    if output is None:
        return encode_safetensors({}, state) if binary else encode_json(state)
    if binary:
        return encode_safetensors({"output": to_wire(output)}, state)
    return encode_json({"output": output.tolist(), **state})
