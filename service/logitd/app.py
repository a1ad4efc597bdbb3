"""The composition root: settings in, ASGI application out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from logitd.access import Access, keys_of
from logitd.admission import Admission
from logitd.api import attention, compare, health, plan, problems, sample, session_steps, sessions, softmax, v2
from logitd.api.direct import Direct
from logitd.api.v2.catalogue import MODELS
from logitd.api.v2.models import VERSION
from logitd.api.v2.statistics import Statistics
from logitd.attending import Attending
from logitd.engine import Engine
from logitd.http.staging import StagingPool
from logitd.lifecycle import Lifecycle, beating, healing
from logitd.metrics import Metrics
from logitd.observe import Observed
from logitd.sessions import Sessions
from logitd.settings import Settings
from logitd.shared_memory import SharedMemory
from logitd.version import __version__

_SUMMARY = "Turns logits into tokens: exact sampling with per-row seeds, entropies and errors."

_DIRECT = ("/v1/sample", "/v1/softmax", *v2.DIRECT)


def create_app(settings: Settings | None = None) -> Observed:
    """Build the service.

    Args:
        settings: None reads the environment.
    Returns:
        An ASGI application with its own metrics registry.
    Raises:
        BackendUnavailable: the settings name a backend that cannot run here.
        CannotServe: the API keys cannot be read.
    """
    settings = settings or Settings()
    app = FastAPI(title="logitd", summary=_SUMMARY, version=__version__, lifespan=_lifespan, redoc_url=None)
    app.router.redirect_slashes = False  # to wherever the Host header says
    rooms = (sample, softmax, attention, compare, plan, sessions, session_steps, health)
    routers = (*(room.router for room in rooms), health.probes, *v2.ROUTERS)
    for router in routers:
        app.include_router(router)
    problems.install(app)
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
    app.state.admission = admission = Admission(settings)
    metrics.admission(lambda: admission.requests, lambda: admission.bytes)
    app.state.staging = StagingPool(settings.staging_pool_bytes)
    app.state.attending = Attending(settings, metrics)
    app.state.sessions = sessions_kept = Sessions(settings)
    metrics.sessions(lambda: len(sessions_kept), lambda: sessions_kept.held_bytes)
    app.state.statistics = Statistics(MODELS, VERSION)
    app.state.shared_memory = SharedMemory(settings.max_shared_regions, settings.max_shared_bytes)
    engine.on_failure = lifecycle.failed
    lifecycle.watch(engine.busy_seconds)
    keys = keys_of(settings)
    direct = Direct(app, [route for route in routes if route.path in _DIRECT])
    return Observed(direct if keys is None else Access(direct, keys), engine, metrics, lifecycle)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine: Engine = app.state.engine
    attending: Attending = app.state.attending
    lifecycle: Lifecycle = app.state.lifecycle
    series: Metrics = app.state.metrics
    engine.start()
    attending.start()
    app.state.metrics.started(__version__, engine.backend.name)
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
