"""The outermost ASGI layer: counts, times and logs every request, and closes connections while the service drains."""

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logitd.access import CALLER
from logitd.api.problems import CLIENT_GONE, problem
from logitd.engine import Engine
from logitd.errors import Unavailable
from logitd.lifecycle import Lifecycle
from logitd.metrics import Metrics

_log = logging.getLogger("logitd.request")
_CLOSE = (b"connection", b"close")


class Observed:
    """Wraps an application; pure ASGI, so that disconnects reach the handlers."""

    def __init__(self, app: ASGIApp, engine: Engine, metrics: Metrics, lifecycle: Lifecycle) -> None:
        self._app = app
        self.engine = engine
        self.metrics = metrics
        self.lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and record what came of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.lifecycle.draining:
                    message["headers"] = [*message.get("headers", ()), _CLOSE]
            await send(message)

        self.metrics.request_began()
        try:
            await self._app(scope, receive, observed)
        except asyncio.CancelledError:
            if status or not self.lifecycle.draining:
                raise
            # Only the end of the process cancels a request then: it could not be answered in time.
            await problem(Unavailable("the service is ending"))(scope, receive, observed)
        finally:
            self._record(scope, status or CLIENT_GONE, time.perf_counter() - began)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        # A session's id is the key to it: not logged.
        path = str(getattr(scope.get("route"), "path", scope["path"]))
        self.metrics.request_ended(path, status, seconds)
        caller = scope.get("state", {}).get(CALLER)
        _log.info(
            "request",
            extra={
                "method": scope["method"],
                "path": path[:200],
                "status": status,
                "seconds": round(seconds, 6),
                **({} if caller is None else {CALLER: caller}),
            },
        )
