"""The admin port: probes and metrics on a thread with an event loop of its own, which a busy service cannot block."""

import sys
import threading

import uvicorn
from fastapi import FastAPI

from logitd.api import health, problems
from logitd.lifecycle import Lifecycle
from logitd.metrics import Metrics
from logitd.serving.listen import Listener
from logitd.settings import Settings

_STOP_SECONDS = 3.0


class Admin:
    """Answers GET /health/live, /health/ready and /metrics until stopped, or until the process ends.

    Args:
        settings, lifecycle, metrics: of the service that it tells of.
        listener: where it answers.
    """

    def __init__(self, settings: Settings, lifecycle: Lifecycle, metrics: Metrics, listener: Listener) -> None:
        self._listener = listener
        config = uvicorn.Config(
            _application(settings, lifecycle, metrics),
            http="httptools",
            ws="none",
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            lifespan="off",
            server_header=False,
            access_log=False,
            log_config=None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener.socket]}, name="logitd-admin", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(_STOP_SECONDS)
        self._listener.close()


def _application(settings: Settings, lifecycle: Lifecycle, metrics: Metrics) -> FastAPI:
    app = FastAPI(title="logitd admin", openapi_url=None)
    app.include_router(health.probes)
    problems.install(app)
    app.state.settings = settings
    app.state.lifecycle = lifecycle
    app.state.metrics = metrics
    return app
