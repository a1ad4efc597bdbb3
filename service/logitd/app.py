"""The composition root: settings in, ASGI application out."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from logitd.access import Access, keys_of
from logitd.admission import Admission
from logitd.api import (
    analyze,
    attention,
    compare,
    health,
    openapi,
    plan,
    problems,
    sample,
    score,
    session_steps,
    sessions,
    softmax,
    v2,
    verify,
)
from logitd.api.direct import Direct
from logitd.api.v2.catalogue import MODELS
from logitd.api.v2.models import VERSION
from logitd.api.v2.statistics import Statistics
from logitd.attending import Attending
from logitd.device_memory import device_memory
from logitd.engine import Engine
from logitd.errors import CannotServe
from logitd.http.staging import StagingPool
from logitd.lifecycle import Lifecycle, beating, healing
from logitd.metrics import Metrics
from logitd.observe import Observed
from logitd.sessions import Sessions
from logitd.settings import Settings
from logitd.shared_memory import SharedMemory
from logitd.ticket import Stages
from logitd.version import __version__

if TYPE_CHECKING:
    from logitd.tracing import Tracing  # needs an extra

_SUMMARY = "Turns logits into tokens: exact sampling with per-row seeds, entropies and errors."

_DIRECT = ("/v1/sample", "/v1/softmax", *v2.DIRECT)


def create_app(settings: Settings | None = None, tracing: "Tracing | None" = None) -> Observed:
    """Build the service.

    Args:
        settings: None reads the environment.
        tracing: None does what the settings say.
    Returns:
        An ASGI application with its own metrics registry.
    Raises:
        BackendUnavailable: the settings name a backend that cannot run here.
        CannotServe: the API keys cannot be read, or traces cannot be sent.
    """
    settings = settings or Settings()
    tracing = tracing or _tracing(settings)
    app = FastAPI(title="logitd", summary=_SUMMARY, version=__version__, lifespan=_lifespan, redoc_url=None)
    app.router.redirect_slashes = False  # to wherever the Host header says
    rooms = (sample, verify, softmax, score, analyze, attention, compare, plan, sessions, session_steps, health)
    routers = (*(room.router for room in rooms), health.probes, *v2.ROUTERS)
    for router in routers:
        app.include_router(router)
    problems.install(app)
    openapi.install(app)
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    metrics = Metrics(registry, [route.path for route in routes])
    app.state.settings = settings
    app.state.lifecycle = lifecycle = Lifecycle()
    metrics.readiness(lambda: lifecycle.ready)
    app.state.metrics = metrics
    app.state.engine = engine = Engine(settings, metrics)
    engine.tracing = tracing
    metrics.engine(lambda: engine.ready and not lifecycle.has_failed)
    memory = device_memory(engine.backend.name)
    if memory is not None:
        metrics.device(*memory)
    app.state.admission = admission = Admission(settings)
    metrics.admission(lambda: admission.requests, lambda: admission.bytes)
    app.state.staging = StagingPool(settings.staging_pool_bytes)
    app.state.attending = Attending(settings, metrics)
    app.state.sessions = sessions_kept = Sessions(settings)
    metrics.sessions(lambda: len(sessions_kept), lambda: sessions_kept.held_bytes)
    sessions_kept.on_event = metrics.session_event
    app.state.stages = Stages if tracing is None else tracing.stages
    app.state.statistics = Statistics(MODELS, VERSION)
    app.state.shared_memory = shared = SharedMemory(
        settings.max_shared_regions, settings.max_shared_bytes, settings.shared_idle_seconds
    )
    metrics.shared_memory(lambda: len(shared.status()), lambda: sum(int(one["byte_size"]) for one in shared.status()))
    engine.on_failure = lifecycle.failed
    lifecycle.watch(engine.busy_seconds)
    keys = keys_of(settings)
    direct = Direct(app, [route for route in routes if route.path in _DIRECT])
    return Observed(direct if keys is None else Access(direct, keys), engine, metrics, lifecycle, tracing)


def _tracing(settings: Settings) -> "Tracing | None":
    if settings.traces == "off":
        return None
    try:
        from logitd.tracing import otlp
    except ImportError:
        raise CannotServe("LOGITD_TRACES / --traces: needs the extra otel: pip install 'logitd[otel]'") from None
    return otlp()


def _fingerprint(settings: Settings) -> str:
    """Return the same for the same settings; where the service listens is none of them."""
    told = settings.model_dump_json(exclude={"host", "port", "uds", "admin_host", "admin_port"})
    return hashlib.sha256(told.encode()).hexdigest()[:12]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine: Engine = app.state.engine
    attending: Attending = app.state.attending
    lifecycle: Lifecycle = app.state.lifecycle
    series: Metrics = app.state.metrics
    engine.start()
    attending.start()
    series.started(__version__, engine.backend.name, _fingerprint(app.state.settings))
    interval = app.state.settings.self_test_seconds

    def beat(lag_seconds: float) -> None:
        series.loop_lag(lag_seconds)
        series.loop_tasks(len(asyncio.all_tasks()))

    background = [
        asyncio.create_task(beating(lifecycle, beat)),
        asyncio.create_task(healing(lifecycle, engine.self_test, interval, series.self_test)),
    ]
    lifecycle.warmed()
    yield
    lifecycle.drain()
    for task in background:
        task.cancel()
    engine.stop()
    attending.stop()
    app.state.shared_memory.unregister()
