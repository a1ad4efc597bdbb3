"""What /v2 tells of the service itself: whether it lives, what it can, its models, its settings."""

from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.problems import refusals
from logitd.api.v2.catalogue import MODELS, find
from logitd.api.v2.models import VERSION
from logitd.api.v2.routing import plain
from logitd.api.v2.sharing import is_local
from logitd.errors import Disabled, NotFound, Unavailable
from logitd.lifecycle import Lifecycle
from logitd.settings import Settings
from logitd.version import __version__

Json = dict[str, Any]

router = APIRouter(prefix="/v2", tags=["open inference protocol"])

_EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics")
_LOGGING: Json = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
_TRACE: Json = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}


@router.get("")
async def server(request: Request) -> Json:
    """Tell name, version, and the extensions of the protocol that are there."""
    settings: Settings = request.app.state.settings
    shared = ["system_shared_memory"] if settings.shared_memory and is_local(settings) else []
    return {"name": "logitd", "version": __version__, "extensions": [*_EXTENSIONS, *shared]}


@router.get("/health/live", response_class=Response)
async def live(request: Request) -> Response:
    """Answer 200 while the event loop gives signs of life, else 503."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    settings: Settings = request.app.state.settings
    if lifecycle.silence_seconds() > settings.live_seconds:
        raise Unavailable("no sign of life")
    return Response()


@router.get("/health/ready", response_class=Response)
async def ready(request: Request) -> Response:
    """Answer 200 once warmed up, until draining and unless a kernel has failed, else 503."""
    check_ready(request)
    return Response()


def check_ready(request: Request) -> None:
    """Refuse unless new work is welcome.

    Raises:
        Unavailable: starting, draining, or after the failure of a kernel.
    """
    lifecycle: Lifecycle = request.app.state.lifecycle
    if not lifecycle.ready:
        raise Unavailable(str(lifecycle.state))


@router.post("/repository/index")
async def index(request: Request) -> list[dict[str, str]]:
    """List the models; all of them are part of the service."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    state = "READY" if lifecycle.ready else "UNAVAILABLE"
    return [{"name": name, "version": VERSION, "state": state, "reason": ""} for name in MODELS]


@router.post("/repository/models/{model}/load", response_class=Response, responses=refusals(NotFound))
async def load(request: Request) -> Response:
    """Do nothing: every model is loaded."""
    plain(request)
    find(request.path_params["model"], None)
    return Response()


@router.post("/repository/models/{model}/unload", responses=refusals(Disabled))
async def unload(request: Request) -> Response:
    """Refuse: the models are part of the service."""
    raise Disabled("models are part of the service and cannot be unloaded")


@router.get("/logging")
async def logging(request: Request) -> Json:
    """Tell the log settings, in Triton's words."""
    return _LOGGING


@router.get("/trace/setting")
@router.get("/models/{model}/trace/setting", include_in_schema=False)
async def trace(request: Request) -> Json:
    """Tell the trace settings, in Triton's words: there is no tracing."""
    return _TRACE


@router.post("/logging", responses=refusals(Disabled))
@router.post("/trace/setting", responses=refusals(Disabled), include_in_schema=False)
@router.post("/models/{model}/trace/setting", include_in_schema=False)
async def fixed(request: Request) -> Response:
    """Refuse: settings are those of the start."""
    raise Disabled("these settings cannot be changed while the service runs")
