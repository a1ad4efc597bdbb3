"""The one ASGI layer: counts and times every request, and logs one line for each."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logitd.api.problems import CLIENT_GONE
from logitd.engine import Engine
from logitd.metrics import Metrics

_log = logging.getLogger("logitd.request")


class Observed:
    """Wraps an application; pure ASGI, so that disconnects reach the handlers."""

    def __init__(self, app: ASGIApp, engine: Engine, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self.engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and record what came of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = CLIENT_GONE

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.request_began()
        try:
            await self._app(scope, receive, observed)
        finally:
            seconds = time.perf_counter() - began
            # A session's id is the key to it: not logged.
            path = str(getattr(scope.get("route"), "path", scope["path"]))
            self._metrics.request_ended(path, status, seconds)
            _log.info(
                "request",
                extra={
                    "method": scope["method"],
                    "path": path[:200],
                    "status": status,
                    "seconds": round(seconds, 6),
                },
            )
