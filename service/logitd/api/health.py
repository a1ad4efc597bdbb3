"""Probes, metrics and what is running."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from prometheus_client.exposition import choose_encoder

from logitd.api.effective import ALWAYS
from logitd.attending import Attending
from logitd.engine import Engine
from logitd.errors import Unavailable
from logitd.lifecycle import Lifecycle
from logitd.metrics import Metrics
from logitd.settings import Settings
from logitd.version import __version__
from logitd.wire.known import MEDIA_TYPES
from logitd_kernels import PARAMETERS, TRANSFORMS, available
from logitd_kernels.attention import MODES
from logitd_kernels.sampling.order import DIALECTS

router = APIRouter(tags=["operations"])
probes = APIRouter(tags=["operations"])  # on the main port, and on the admin port

_REFUSED: dict[int | str, dict[str, Any]] = {Unavailable.status: {"description": Unavailable.title}}


@probes.get("/health/live", responses=_REFUSED)
async def live(request: Request) -> dict[str, str]:
    """Answer 200 while the event loop of the main port gives signs of life, else 503."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    settings: Settings = request.app.state.settings
    silence = lifecycle.silence_seconds()
    if silence > settings.live_seconds:
        raise Unavailable(f"no sign of life for {silence:.1f} s")
    return {"status": "live"}


@probes.get("/health/ready", responses=_REFUSED)
async def ready(request: Request) -> dict[str, str]:
    """Answer 200 once warmed up, until draining and unless a kernel has failed, else 503."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    if not lifecycle.ready:
        raise Unavailable(str(lifecycle.state))
    return {"status": "ready"}


@probes.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Expose every series, as Prometheus text or OpenMetrics by Accept."""
    series: Metrics = request.app.state.metrics
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(series.registry), headers={"content-type": content_type})


@router.get("/v1/info")
async def info(request: Request) -> dict[str, Any]:
    """Tell versions, backends, limits, parameters and effective settings."""
    engine: Engine = request.app.state.engine
    attending: Attending = request.app.state.attending
    settings: Settings = request.app.state.settings
    return {
        "version": __version__,
        "backend": {**engine.backend.describe(), "unavailable": _missing()},
        "media_types": list(MEDIA_TYPES),
        "dtypes": ["F32", "F16", "BF16", "F64"],
        "transforms": [transform.name for transform in TRANSFORMS],
        "dialects": list(DIALECTS),
        "parameters": {
            name: {"neutral": parameter.neutral, "bounds": parameter.bounds, "echoed": name in ALWAYS}
            for name, parameter in PARAMETERS.items()
        },
        "attention": {"modes": list(MODES), "threshold": attending.threshold},
        "settings": settings.model_dump(),
    }


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """Lead a browser to the API's documentation."""
    return RedirectResponse("/docs")


def _missing() -> dict[str, str]:
    return {name: reason for name, reason in available().items() if reason is not None}
