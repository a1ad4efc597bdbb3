"""Steps of a session: tokens taken in, and questions asked of what it keeps."""

from collections.abc import Callable
from typing import Any

import orjson
import torch
from fastapi import APIRouter, Request, Response

from logitd.api.answers import encode_json, encode_safetensors, wants_safetensors
from logitd.api.attention_job import JSON_BYTES, check_json_answer
from logitd.api.attention_schemas import QUERY_SCHEMA, STEP_SCHEMA, StepFields
from logitd.api.exchange import Exchange
from logitd.api.problems import responses
from logitd.api.requests import named, only
from logitd.api.schemas import check, json_body, request_body
from logitd.api.tensors import digest, to_torch, to_wire
from logitd.errors import Conflict, Gone, Invalid, NotFound
from logitd.session import Session
from logitd.sessions import REPLY_BYTES, Sessions
from logitd.settings import Settings
from logitd.ticket import Stages
from logitd.wire.known import SESSION
from logitd.wire.message import Message
from logitd_kernels.errors import NonFiniteTensor

Json = dict[str, Any]
Finish = Callable[[Json], bytes]

KEPT_REPLY_BYTES = 16 << 20  # a larger answer is not kept for whoever did not get it


PATH = "/attention/sessions/{session_id}"
router = APIRouter(prefix="/v1", tags=["attention sessions"])

_STEP = json_body(StepFields, STEP_SCHEMA, ["k", "v"])
_QUERY = {"type": "object", "additionalProperties": False, "properties": QUERY_SCHEMA, "required": ["q"]}


@router.post(
    f"{PATH}/append",
    responses=responses(NotFound, Gone, Conflict),
    openapi_extra=request_body(_STEP, SESSION),
)
async def append(request: Request, session_id: str) -> Response:
    """Take in tokens, and answer the queries of the last of them, if they come along."""
    sessions: Sessions = request.app.state.sessions
    settings: Settings = request.app.state.settings
    binary = wants_safetensors(request.headers.get("accept", ""))
    with sessions.using(session_id) as session, Exchange(request, attention=True) as exchange:

        def work(message: Message, stages: Stages) -> Finish:
            with stages("decode"):
                fields = check(StepFields, message.fields)
                tensors = _tensors(session, message, ("k", "v"), ("q",))
                body = digest({"binary": binary}, message.tensors)
            with session.lock:
                reply = session.begin(fields.step, body)
                if reply is None:
                    room = _admit(session, tensors, binary, settings)
                    reply = named(message, lambda: _step(sessions, session, tensors, binary, room, body, stages))
            return lambda seconds: reply

        return await exchange.answered(SESSION, work, binary)


@router.post(f"{PATH}/query", responses=responses(NotFound, Gone), openapi_extra=request_body(_QUERY, SESSION))
async def query(request: Request, session_id: str) -> Response:
    """Ask of everything that a session has taken in; it does not change."""
    sessions: Sessions = request.app.state.sessions
    settings: Settings = request.app.state.settings
    binary = wants_safetensors(request.headers.get("accept", ""))
    with sessions.using(session_id) as session, Exchange(request, attention=True) as exchange:

        def work(message: Message, stages: Stages) -> Finish:
            with stages("decode"):
                check(StepFields, message.fields)
                tensors = _tensors(session, message, ("q",), ())
            with session.lock:
                with stages("compute"):
                    _admit(session, tensors, binary, settings)
                    output = named(message, lambda: session.stream.read(tensors["q"]))
                with stages("encode"):
                    return _reply(session, output, binary, session.step)

        return await exchange.answered(SESSION, work, binary)


def _tensors(
    session: Session, message: Message, required: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    """Return the tensors as float32: there, of the session's shapes, and finite.

    Raises:
        Invalid: naming the tensor.
    """
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
    named(message, lambda: session.stream.setting.check(*(tensors.get(one) for one in ("q", "k", "v"))))
    return tensors


def _step(
    sessions: Sessions,
    session: Session,
    tensors: dict[str, torch.Tensor],
    binary: bool,
    room: int,
    body: bytes,
    stages: Stages,
) -> bytes:
    """Take tokens in and answer; `room` is of the reply, which is kept if that is not too much."""
    keep = room <= KEPT_REPLY_BYTES
    with sessions.growing(session, session.stream.growth(tensors["k"].shape[1]), room if keep else REPLY_BYTES):
        with stages("compute"):
            output = session.stream.attend(tensors.get("q"), tensors["k"], tensors["v"])
        with stages("encode"):
            reply = _reply(session, output, binary, session.step + 1)(stages.seconds)
            session.end(reply if keep else None, body)
    return reply


def _admit(session: Session, tensors: dict[str, torch.Tensor], binary: bool, settings: Settings) -> int:
    """Refuse more work than one request may be, as if attention were exact, and too large an answer.

    Returns:
        The bytes that the answer has at most.
    """
    setting = session.stream.setting
    queries, more = (tensors[name].shape[-2] if name in tensors else 0 for name in ("q", "k"))
    work = setting.heads * queries * (session.stream.tokens + more) * (setting.dim + setting.value_dim)
    limit = settings.max_attention_multiply_adds
    if work > limit:
        raise Invalid.at("q", f"at most {limit} multiply-adds a request, exact attention would be {work}")
    numbers = setting.heads * queries * setting.value_dim
    if 4 * numbers > settings.max_body_bytes:
        raise Invalid.at("q", f"an answer has at most {settings.max_body_bytes} bytes, this has {numbers} numbers")
    if not binary:
        check_json_answer(numbers, settings)
    return REPLY_BYTES + numbers * (4 if binary else JSON_BYTES)


def _reply(session: Session, output: torch.Tensor | None, binary: bool, step: int) -> Finish:
    state = {"step": step, "tokens": session.stream.tokens, "state_bytes": session.stream.bytes}
    if output is None:
        return encode_safetensors({}, state) if binary else encode_json(state)
    if binary:
        return encode_safetensors({"output": to_wire(output)}, state)
    text = orjson.Fragment(orjson.dumps(output.contiguous().numpy(), option=orjson.OPT_SERIALIZE_NUMPY))
    return encode_json({"output": text, **state})
