"""/v1/attention/sessions: attention over a sequence that comes in pieces."""

import orjson
from fastapi import APIRouter, Request, Response

from logitd.api.attention_job import planned_modes
from logitd.api.attention_schemas import SessionFields
from logitd.api.exchange import Exchange
from logitd.api.problems import responses
from logitd.api.requests import named
from logitd.api.schemas import check, json_body
from logitd.api.session_state import export_state, import_state
from logitd.errors import Gone, Invalid, NotFound, UnsupportedMedia
from logitd.session import Session
from logitd.sessions import Sessions
from logitd.settings import Settings
from logitd.wire import json as wire_json
from logitd.wire import safetensors
from logitd.wire.known import FIELDS
from logitd_kernels.attention import Options
from logitd_kernels.attention.streams import StreamSetting, needed_bytes, open_stream

PATH = "/attention/sessions"
router = APIRouter(prefix="/v1", tags=["attention sessions"])

_CREATE = json_body(SessionFields, {}, ["heads", "dim"])
_MISSING = responses(NotFound, Gone)
_FILE = {"content": {safetensors.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


@router.post(
    PATH,
    status_code=201,
    responses=responses(),
    openapi_extra={"requestBody": {"required": True, "content": {wire_json.MEDIA_TYPE: {"schema": _CREATE}}}},
)
async def create(request: Request) -> Response:
    """Open a session. Its id is the only key to it."""
    settings: Settings = request.app.state.settings
    with Exchange(request, attention=True) as exchange:
        decoded = await exchange.undecoded(FIELDS)

        def work() -> Session:
            message = decoded()
            fields = check(SessionFields, message.fields)
            return named(message, lambda: _opened(_sessions(request), fields))

        return _told(await exchange.attended(work), settings, 201)


@router.post(f"{PATH}/import", status_code=201, responses=responses(), openapi_extra={"requestBody": _FILE})
async def restore(request: Request) -> Response:
    """Open a session that continues an export, on the same bits."""
    settings: Settings = request.app.state.settings
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != safetensors.MEDIA_TYPE:
        raise UnsupportedMedia.at("content-type", f"expected {safetensors.MEDIA_TYPE}, got {content_type[:60]!r}")

    def work() -> Session:
        state = import_state(body)
        return _sessions(request).create(state.needed, state.stream, state.tolerance, state.step, "import")

    with Exchange(request, attention=True) as exchange:
        body = await exchange.body()
        return _told(await exchange.attended(work), settings, 201)


@router.get(f"{PATH}/{{session_id}}", responses=_MISSING)
async def show(request: Request, session_id: str) -> Response:
    """Tell a session's method, step, tokens and size."""
    return _told(_sessions(request).get(session_id), request.app.state.settings)


@router.get(f"{PATH}/{{session_id}}/export", responses={**_MISSING, 200: _FILE})
async def export(request: Request, session_id: str) -> Response:
    """Return the state as a file: versioned, with a checksum; float32 as it is."""
    with _sessions(request).using(session_id) as session, Exchange(request, attention=True) as exchange:

        def work() -> bytes:
            with session.lock:
                return export_state(session.stream, session.step, session.tolerance)

        content = await exchange.attended(work)
        _sessions(request).on_event("export")
        return Response(content, media_type=safetensors.MEDIA_TYPE)


@router.delete(f"{PATH}/{{session_id}}", status_code=204, responses=_MISSING)
async def delete(request: Request, session_id: str) -> Response:
    """End a session."""
    _sessions(request).delete(session_id)
    return Response(status_code=204)


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


def _opened(sessions: Sessions, fields: SessionFields) -> Session:
    setting = _setting(fields)
    return sessions.create(needed_bytes(setting), lambda: open_stream(setting), fields.tolerance)


def _setting(fields: SessionFields) -> StreamSetting:
    return StreamSetting(
        fields.method,
        fields.heads,
        fields.kv_heads or fields.heads,
        fields.dim,
        fields.value_dim or fields.dim,
        fields.scale,
        Options(fields.rank, fields.feature_dim, fields.seed, fields.orthogonal),
        _modes(fields),
    )


def _modes(fields: SessionFields) -> tuple[str, ...] | None:
    if fields.plan is None:
        if fields.layer is not None:
            raise Invalid.at("layer", "goes with a plan, and there is none")
        return None if fields.modes is None else tuple(fields.modes)
    if fields.modes is not None:
        raise Invalid.at("modes", "send either modes or a plan, not both")
    return planned_modes(fields.plan, fields.layer)


def _told(session: Session, settings: Settings, status: int = 200) -> Response:
    stream = session.stream
    told = {
        "id": session.id,
        "method": stream.setting.method,
        "modes": stream.setting.modes,
        "step": session.step,
        "tokens": stream.tokens,
        "state_bytes": stream.bytes,
        "tolerance": session.tolerance,
        "early_error": None if stream.early_error is None else stream.early_error.tolist(),
        "ttl_seconds": settings.session_ttl_seconds,
    }
    return Response(orjson.dumps(told), status, media_type=wire_json.MEDIA_TYPE)  # NaN becomes null
