"""OpenTelemetry spans of requests and batches. Needs the extra `otel`; nobody imports it where tracing is off.

A request has a span `POST /v1/sample` in its caller's trace, with one child for each stage that it has been through:
read, decode, queue, compute, encode, write. Each batch has a span `batch`, linked to the requests whose rows are in it,
or below its only request where that was computed at once.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

from logitd.errors import CannotServe
from logitd.ticket import Stages
from logitd.version import __version__

_UNTRACED = frozenset({"/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready", "/metrics"})
_PROPAGATED = (b"traceparent", b"tracestate")
_PROPAGATOR = TraceContextTextMapPropagator()


class _Noted(dict[str, float]):
    """Seconds by stage; notes when each was last set, which is when it ended."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__(seconds)
        self.ended: dict[str, float] = {}

    def __setitem__(self, stage: str, seconds: float) -> None:
        self.ended[stage] = time.perf_counter()
        super().__setitem__(stage, seconds)


class TracedStages(Stages):
    """Where a request spends its time, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: _Noted = _Noted(self.seconds)

    def spans(self) -> Iterator[tuple[str, float, float]]:
        """Yield each stage that there was, when it began and when it ended, on time.perf_counter."""
        ended = self.seconds.ended
        for stage, end in ended.items():
            seconds = self.seconds[stage]
            if stage == "queue" and "compute" in ended:  # told late, when the answer was there
                end = min(end, ended["compute"] - self.seconds["compute"])
            yield stage, end - seconds, end


class RequestSpan:
    """The span of one request, current until it ends."""

    def __init__(self, tracer: Tracer, scope: Scope) -> None:
        told = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _PROPAGATED}
        parent = _PROPAGATOR.extract(told)
        self._offset_ns = time.time_ns() - time.perf_counter_ns()
        self._tracer = tracer
        self._span = tracer.start_span(scope["method"], parent, SpanKind.SERVER)
        self._context = trace.set_span_in_context(self._span)
        self._token = contexts.attach(self._context)

    @property
    def trace_id(self) -> str:
        """Of the trace that it belongs to, 32 hexadecimal digits."""
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    @property
    def is_sampled(self) -> bool:
        """Whether it is kept."""
        return self._span.get_span_context().trace_flags.sampled

    def end(self, method: str, route: str, status: int, stages: Stages | None, writing: float) -> None:
        """Tell what became of it.

        Args:
            method: of HTTP.
            route: the template, never the path: a session's id is the key to it.
            status: of HTTP.
            stages: where its time went; None for a request without tensors.
            writing: when its answer began, on time.perf_counter; 0 if it has none.
        """
        ended = time.perf_counter()
        if isinstance(stages, TracedStages):
            for stage, start, end in stages.spans():
                self._child(stage, start, end)
            if writing:
                self._child("write", writing, ended)
        span = self._span
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._wall_ns(ended))
        contexts.detach(self._token)

    def _child(self, name: str, began: float, ended: float) -> None:
        span = self._tracer.start_span(name, self._context, start_time=self._wall_ns(began))
        span.end(self._wall_ns(ended))

    def _wall_ns(self, seconds: float) -> int:
        return self._offset_ns + round(seconds * 1e9)


class Tracing:
    """Makes spans.

    Args:
        provider: where they go.
    """

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("logitd", __version__)
        self.stages = TracedStages

    def began(self, scope: Scope) -> RequestSpan | None:
        """Begin the span of a request; probes have none."""
        return None if scope["path"] in _UNTRACED else RequestSpan(self._tracer, scope)

    def current(self) -> SpanContext:
        """Return who is computed for, on the calling task."""
        return trace.get_current_span().get_span_context()

    @contextmanager
    def batch(self, attributes: Mapping[str, Any], members: Sequence[SpanContext]) -> Iterator[None]:
        """Make a span of what a thread computes.

        Args:
            attributes: of the batch.
            members: who is computed for; none where that is whose span is current.
        """
        kept = [member for member in members if member.trace_flags.sampled]
        if members and not kept:  # a batch is nobody's child, so that by itself it would always be kept
            yield
            return
        with self._tracer.start_as_current_span("batch", attributes=attributes, links=[Link(one) for one in kept]):
            yield


def otlp() -> Tracing:
    """Return tracing to an OTLP endpoint, as the standard variables OTEL_… say.

    Raises:
        CannotServe: the exporter is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise CannotServe("LOGITD_TRACES / --traces: otlp needs the extra otel: pip install 'logitd[otel]'") from None
    name = os.environ.get("OTEL_SERVICE_NAME", "logitd")
    provider = TracerProvider(resource=Resource.create({"service.name": name, "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
