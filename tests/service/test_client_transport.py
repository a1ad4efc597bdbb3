"""The client when things go wrong: addresses, refusals, retries; faults come from the transport under it."""

import asyncio
import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import numpy as np
import pytest

from logitd import (
    AsyncClient,
    Client,
    ConnectionFailed,
    InvalidRequest,
    Overloaded,
    ServerFault,
    TimedOut,
    UnexpectedAnswer,
)
from logitd.client.answer import error_of, retry_after_seconds
from logitd.client.retry import Retry
from logitd.settings import Settings

LOGITS = (np.random.default_rng(1).normal(size=(4, 500)) * 4).astype(np.float32)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://host:port", "http://", ""])
def test_a_url_that_cannot_be_used(url):
    with pytest.raises(ValueError, match="url"):
        Client(url)


def test_other_arguments_that_cannot_be_used():
    with pytest.raises(ValueError, match="retries"):
        Client(retries=-1)
    with pytest.raises(ValueError, match="timeout_seconds"):
        AsyncClient(timeout_seconds=0)


def test_a_path_in_front_of_the_routes_is_kept(service_url):
    with Client(service_url + "/behind/a/proxy") as client, pytest.raises(InvalidRequest) as missing:
        client.info()
    assert missing.value.status == 404


def test_a_body_that_the_service_finds_too_large(serve):
    with serve(Settings(max_body_bytes=1000)) as url, Client(url) as client:
        with pytest.raises(InvalidRequest) as refused:
            client.sample(LOGITS, seed=1)
        assert refused.value.status == 413
        assert client.info()["settings"]["max_body_bytes"] == 1000


def test_no_answer_in_time_is_not_tried_again():
    waits = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout_seconds=0.1, sleep=waits.append) as client, pytest.raises(TimedOut):
            client.info()
    assert waits == []


def test_nothing_listens():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    waits = []
    with Client(url, sleep=waits.append) as client, pytest.raises(ConnectionFailed, match="refused"):
        client.sample(LOGITS)  # unseeded, but nothing of it was sent
    assert len(waits) == 3


class Faulty(httpx.HTTPTransport):
    """The real service behind something that fails first: each fault is an answer or an exception."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = list(faults)

    def handle_request(self, request):
        if not self.faults:
            return super().handle_request(request)
        fault = self.faults.pop(0)
        if isinstance(fault, Exception):
            raise fault
        return fault


class AsyncFaulty(httpx.AsyncHTTPTransport):
    def __init__(self, *faults):
        super().__init__()
        self.faults = list(faults)

    async def handle_async_request(self, request):
        return self.faults.pop(0) if self.faults else await super().handle_async_request(request)


def overloaded(status=429, **headers):
    return httpx.Response(status, headers=headers, json={"detail": "the queue is full"})


@pytest.mark.parametrize(
    ("fault", "least", "most"),
    [
        (overloaded(**{"retry-after": "2"}), 2, 2),
        (overloaded(503, **{"retry-after": "3600"}), 30, 30),
        (overloaded(), 0.05, 0.1),
        (overloaded(502), 0.05, 0.1),
        (overloaded(504), 0.05, 0.1),
        (httpx.ReadError("reset"), 0.05, 0.1),
        (httpx.RemoteProtocolError("disconnected"), 0.05, 0.1),
    ],
    ids=["429-after", "503-after-capped", "429", "502", "504", "reset", "disconnected"],
)
def test_a_passing_fault_is_waited_out(service_url, fault, least, most):
    waits = []
    with Client(service_url, transport=Faulty(fault), sleep=waits.append) as client:
        assert len(client.sample(LOGITS, seed=1).rows) == 4
    assert len(waits) == 1
    assert least <= waits[0] <= most


@pytest.mark.parametrize("call", [lambda c: c.softmax(LOGITS), lambda c: c.info()], ids=["softmax", "info"])
def test_other_repeatable_calls_are_tried_again_too(service_url, call):
    waits = []
    with Client(service_url, transport=Faulty(overloaded(), overloaded(503)), sleep=waits.append) as client:
        call(client)
    assert len(waits) == 2


def test_the_async_client_waits_too(service_url):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    async def ask():
        fault = overloaded(**{"retry-after": "2"})
        async with AsyncClient(service_url, transport=AsyncFaulty(fault), sleep=sleep) as client:
            return await client.sample(LOGITS, seed=1)

    assert len(asyncio.run(ask()).rows) == 4
    assert waits == [2]


@pytest.mark.parametrize(
    ("faults", "params", "error"),
    [
        ([overloaded()], {}, Overloaded),
        ([overloaded()], [{"seed": 1}, {"seed": None}, {"seed": 2}, {"seed": 3}], Overloaded),
        ([httpx.ReadError("reset")], {"seed": -1}, ConnectionFailed),
        ([overloaded(422)], {"seed": 1}, InvalidRequest),
        ([overloaded(500)], {"seed": 1}, ServerFault),
        ([httpx.Response(200, content=b"<html>")], {"seed": 1}, UnexpectedAnswer),
        ([overloaded()] * 4, {"seed": 1}, Overloaded),
    ],
    ids=["unseeded", "one-unseeded", "unseeded-reset", "invalid", "fault", "unreadable", "too-often"],
)
def test_when_to_give_up(service_url, faults, params, error):
    waits = []
    transport = Faulty(*faults)
    with Client(service_url, transport=transport, sleep=waits.append) as client, pytest.raises(error):
        client.sample(LOGITS, params=params)
    assert len(waits) == len(faults) - 1
    assert transport.faults == []


def test_backoff_doubles_up_to_a_limit_and_jitter_halves_it_at_most():
    fault = Overloaded(429, "")
    longest, shortest = Retry(50, random=lambda: 1.0), Retry(50, random=lambda: 0.0)
    waits = [longest.delay_seconds(failed, fault, repeatable=True) for failed in range(1, 51)]
    assert waits[:5] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])
    assert max(waits) == waits[-1] == 5.0
    assert [shortest.delay_seconds(n, fault, repeatable=True) for n in (1, 2)] == pytest.approx([0.05, 0.1])
    assert longest.delay_seconds(51, fault, repeatable=True) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("0", 0.0), ("17", 17.0), ("1.5", 1.5), ("soon", None), ("-3", None), ("", None)],
)
def test_retry_after_in_seconds(header, seconds):
    assert retry_after_seconds(header) == seconds


def test_retry_after_as_a_date():
    later = datetime.now(UTC) + timedelta(seconds=100)
    assert retry_after_seconds(format_datetime(later, usegmt=True)) == pytest.approx(99, abs=2)
    assert retry_after_seconds(format_datetime(later - timedelta(days=1), usegmt=True)) == 0.0


@pytest.mark.parametrize(
    ("status", "kind"),
    [(status, InvalidRequest) for status in (400, 401, 404, 405, 408, 413, 415, 422)]
    + [(429, Overloaded), (503, Overloaded), (500, ServerFault), (502, ServerFault), (504, ServerFault)],
)
def test_a_problem_document_becomes_its_error(status, kind):
    document = {"title": "T", "detail": "why", "errors": [{"path": "params.top_p", "message": "must be 1"}]}
    error = error_of(status, {"retry-after": "4"}, json.dumps(document).encode())
    assert type(error) is kind
    assert str(error) == f"{status}: why"
    assert error.retry_after_seconds == 4.0
    assert [(field.path, field.message) for field in error.fields] == [("params.top_p", "must be 1")]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "Bad Gateway"),
        (b"<html>\n<h1>nginx</h1>", "Bad Gateway: <html> <h1>nginx</h1>"),
        (b"\xff\xfe", "Bad Gateway: \ufffd\ufffd"),
        (b"[" * 100_000, "Bad Gateway: " + "[" * 200),
        (b"[1]", "Bad Gateway: [1]"),
        (b'{"error": "down"}', "down"),
        (b'{"detail": [{"loc": 1}]}', 'Bad Gateway: {"detail": [{"loc": 1}]}'),
    ],
    ids=["empty", "html", "bytes", "nested", "list", "error", "foreign-detail"],
)
def test_any_other_body_becomes_a_typed_error_too(body, detail):
    error = error_of(502, {}, body)
    assert type(error) is ServerFault
    assert error.detail == detail


def test_a_redirect_is_no_answer():
    error = error_of(307, {"location": "/login"}, b"")
    assert type(error) is UnexpectedAnswer
    assert "/login" in str(error)


@pytest.mark.parametrize("cut", [0, 7, 8, 100, -1])
def test_an_answer_cut_short_is_unexpected(service_url, cut):
    with httpx.Client() as http:
        logits = {"logits": LOGITS.tolist()}
        accept = {"accept": "application/vnd.safetensors"}
        body = http.post(service_url + "/v1/sample", json=logits, headers=accept).content
    transport = Faulty(httpx.Response(200, content=body[:cut]))
    with Client(service_url, transport=transport) as client, pytest.raises(UnexpectedAnswer, match="sample answer"):
        client.sample(LOGITS)
