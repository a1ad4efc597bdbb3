"""Traces: what callers say they belong to, and the spans of the extra `otel`."""

import asyncio
import json
import logging
import sys
from itertools import pairwise

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from running import inside
from wire import post

from logitd.app import create_app
from logitd.errors import CannotServe
from logitd.log import JsonFormatter
from logitd.settings import Settings
from logitd.traceparent import Trace, trace_of
from logitd.tracing import Tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KEPT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
QUEUED = {"logits": [[1, 2, 3]], "params": {"seed": 1, "n": 2}}  # off the compiled path
SESSIONS = "/v1/attention/sessions"


@pytest.fixture
def traced():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with inside(Settings(compute_threads=1), Tracing(provider)) as (_, url, _):

        def spans():
            httpx.get(f"{url}/health/live")  # answered once all before it have ended
            return {span.name: span for span in exporter.get_finished_spans()}

        yield url, spans


def test_a_request_and_its_stages_are_spans_of_the_callers_trace(traced):
    url, spans = traced
    assert post(url, "/v1/sample", QUEUED, **KEPT).status_code == 200
    found = spans()
    request, batch = found.pop("POST /v1/sample"), found.pop("batch")
    assert set(found) == {"read", "decode", "queue", "compute", "encode", "write"}
    assert request.kind is SpanKind.SERVER
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert request.attributes["http.route"] == "/v1/sample"
    assert request.attributes["http.response.status_code"] == 200
    for span in found.values():
        assert span.parent.span_id == request.context.span_id
        assert request.start_time - 1000 <= span.start_time <= span.end_time <= request.end_time + 1000
    for earlier, later in pairwise(("read", "decode", "queue", "compute", "encode", "write")):
        assert found[earlier].end_time <= found[later].start_time + 1000
    assert batch.parent is None
    assert [link.context.span_id for link in batch.links] == [request.context.span_id]
    assert dict(batch.attributes) == dict(batch.attributes) | {"op": "sample", "rows": 1, "requests": 1}


def test_light_work_is_a_batch_below_its_request(traced):
    url, spans = traced
    post(url, "/v1/sample", {"logits": [[1, 2]], "params": {"seed": 1}}, **KEPT)
    found = spans()
    assert found["batch"].parent.span_id == found["POST /v1/sample"].context.span_id
    assert "queue" not in found


def test_a_trace_that_nobody_keeps_has_no_spans(traced):
    url, spans = traced
    post(url, "/v1/sample", QUEUED, traceparent=f"00-{TRACE}-{PARENT}-00")
    assert spans() == {}


def test_probes_have_no_spans_and_ids_of_sessions_are_in_none(traced):
    url, spans = traced
    for path in ("/health/live", "/health/ready", "/v2/health/ready", "/metrics"):
        httpx.get(f"{url}{path}")
    assert spans() == {}
    name = post(url, SESSIONS, {"heads": 1, "dim": 4}).json()["id"]
    httpx.delete(f"{url}{SESSIONS}/{name}")
    httpx.get(f"{url}/{name}")
    assert {f"DELETE {SESSIONS}/{{session_id}}", "GET unmatched"} <= set(spans())
    assert not any(name in span.to_json() for span in spans().values())


def test_a_failure_is_an_error_of_its_span(traced):
    url, spans = traced
    post(url, "/v1/sample", QUEUED, **KEPT, **{"x-request-timeout-ms": "0"})
    span = spans()["POST /v1/sample"]
    assert not span.status.is_ok
    assert span.attributes["error.type"] == "504"


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(CannotServe, match=r"logitd\[otel\]"):
        create_app(Settings(traces="otlp"))


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (f"00-{TRACE}-{PARENT}-01", Trace(TRACE, True)),
        (f"00-{TRACE}-{PARENT}-02", Trace(TRACE, False)),
        (f"cc-{TRACE}-{PARENT}-03-what-comes", Trace(TRACE, True)),
        (f"00-{TRACE}-{PARENT}-01-more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-{PARENT}", None),
        ("", None),
    ],
)
def test_traceparent(header, trace):
    assert trace_of([(b"host", b"x"), (b"traceparent", header.encode())]) == trace
    assert trace_of([(b"host", b"x")]) is None


def logged(level, **headers):
    """The records of one request to an application whose log has a level."""
    records, logger = [], logging.getLogger("logitd.request")
    handler = logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(level)

    async def ask():
        transport = httpx.ASGITransport(create_app(Settings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            await client.post("/v1/sample", json={"logits": [[1.5, 2.5]]}, headers=headers)

    try:
        asyncio.run(ask())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    return records


def test_a_request_is_one_line_with_its_trace_and_without_its_tensors():
    [record] = logged(logging.INFO, **KEPT)
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["path"], line["trace_id"]) == ("request", "/v1/sample", TRACE)
    assert set(line) == {"time", "level", "logger", "message", "method", "path", "status", "seconds", "trace_id"}
    [record] = logged(logging.INFO)
    assert not hasattr(record, "trace_id")


def test_a_line_that_is_not_wanted_is_not_made(monkeypatch):
    monkeypatch.setattr("logitd.observe._line", lambda *_: pytest.fail("a line was made"))
    assert logged(logging.WARNING) == []
