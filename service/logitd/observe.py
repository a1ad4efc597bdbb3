"""The outermost ASGI layer: counts, times and logs every request, and closes connections while the service drains."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logitd.access import CALLER
from logitd.api.problems import CLIENT_GONE, problem
from logitd.counting.series import UNMATCHED
from logitd.engine import Engine
from logitd.errors import Unavailable
from logitd.lifecycle import Lifecycle
from logitd.metrics import Metrics
from logitd.ticket import STAGES_OF
from logitd.traceparent import Trace, trace_of

if TYPE_CHECKING:
    from logitd.tracing import RequestSpan, Tracing  # needs an extra

_log = logging.getLogger("logitd.request")
_CLOSE = (b"connection", b"close")


class Observed:
    """Wraps an application; pure ASGI, so that disconnects reach the handlers."""

    def __init__(
        self,
        app: ASGIApp,
        engine: Engine,
        metrics: Metrics,
        lifecycle: Lifecycle,
        tracing: "Tracing | None" = None,
    ) -> None:
        self._app = app
        self.engine = engine
        self.metrics = metrics
        self.lifecycle = lifecycle
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and record what came of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = answer_bytes = 0
        writing = 0.0

        async def observed(message: Message) -> None:
            nonlocal status, answer_bytes, writing
            if message["type"] == "http.response.start":
                status, writing = message["status"], time.perf_counter()
                if self.lifecycle.draining:
                    message["headers"] = [*message.get("headers", ()), _CLOSE]
            else:
                answer_bytes += len(message.get("body", b""))
            await send(message)

        self.metrics.request_began()
        span = None if self._tracing is None else self._tracing.began(scope)
        try:
            await self._app(scope, receive, observed)
        except asyncio.CancelledError:
            if status or not self.lifecycle.draining:
                raise
            # Only the end of the process cancels a request then: it could not be answered in time.
            self.metrics.rejected("draining")
            await problem(Unavailable("the service is ending"))(scope, receive, observed)
        finally:
            self._record(scope, status or CLIENT_GONE, began, writing, answer_bytes, span)

    def _record(
        self,
        scope: Scope,
        status: int,
        began: float,
        writing: float,
        answer_bytes: int,
        span: "RequestSpan | None",
    ) -> None:
        ended = time.perf_counter()
        if status == CLIENT_GONE:
            writing = 0.0  # what nobody was there to read is no answer
        # A session's id is the key to it: not logged.
        path = str(getattr(scope.get("route"), "path", scope["path"]))
        trace = trace_of(scope["headers"]) if span is None else Trace(span.trace_id, span.is_sampled)
        trace_id = None if trace is None else trace.trace_id
        kept = trace is not None and trace.is_sampled
        self.metrics.request_ended(path, status, ended - began, trace_id if kept else None)
        stages = scope.get(STAGES_OF)
        if stages is not None and writing:
            self.metrics.answered(stages.body_bytes, answer_bytes, ended - writing)
        if span is not None:
            route = getattr(scope.get("route"), "path", UNMATCHED)
            span.end(scope["method"], route, status, stages, writing)
        if _log.isEnabledFor(logging.INFO):
            _line(scope, path, status, ended - began, trace_id)


def _line(scope: Scope, path: str, status: int, seconds: float, trace_id: str | None) -> None:
    """Log one request."""
    fields = {"method": scope["method"], "path": path[:200], "status": status, "seconds": round(seconds, 6)}
    if trace_id is not None:
        fields["trace_id"] = trace_id
    caller = scope.get("state", {}).get(CALLER)
    if caller is not None:
        fields[CALLER] = caller
    _log.info("request", extra=fields)
