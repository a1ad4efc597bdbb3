"""The composition root: settings in, ASGI application out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from logitd.api import attention, compare, health, plan, problems, sample, session_steps, sessions, softmax
from logitd.attending import Attending
from logitd.engine import Engine
from logitd.metrics import Metrics
from logitd.observe import Observed
from logitd.sessions import Sessions
from logitd.settings import Settings
from logitd.version import __version__

_SUMMARY = "Turns logits into tokens: exact sampling with per-row seeds, entropies and errors."


def create_app(settings: Settings | None = None) -> Observed:
    """Build the service.

    Args:
        settings: None reads the environment.
    Returns:
        An ASGI application with its own metrics registry.
    Raises:
        BackendUnavailable: the settings name a backend that cannot run here.
    """
    settings = settings or Settings()
    app = FastAPI(title="logitd", summary=_SUMMARY, version=__version__, lifespan=_lifespan, redoc_url=None)
    rooms = (sample, softmax, attention, compare, plan, sessions, session_steps, health)
    for room in rooms:
        app.include_router(room.router)
    problems.install(app)
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    metrics = Metrics(
        registry, [route.path for room in rooms for route in room.router.routes if isinstance(route, APIRoute)]
    )
    app.state.settings = settings
    app.state.metrics = metrics
    app.state.engine = Engine(settings, metrics)
    app.state.attending = Attending(settings, metrics)
    app.state.sessions = sessions_kept = Sessions(settings)
    metrics.sessions(lambda: len(sessions_kept), lambda: sessions_kept.held_bytes)
    return Observed(app, app.state.engine, metrics)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine: Engine = app.state.engine
    attending: Attending = app.state.attending
    engine.start()
    attending.start()
    app.state.metrics.started(__version__, engine.backend.name)
    yield
    engine.stop()
    attending.stop()
