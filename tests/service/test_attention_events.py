"""Comparisons as streams of events, and attention calls that are tried again: answers come from the transport."""

import asyncio
import json

import httpx
import pytest
from test_attention import tensors

from logitd import (
    AsyncClient,
    Client,
    ConnectionFailed,
    InvalidRequest,
    Overloaded,
    ServerFault,
    UnexpectedAnswer,
)
from logitd.client.attention_answer import read_comparison
from logitd.client.events import EventReader, Listener

SMALL = tensors(40, heads=3, dim=8, batch=2)


class Answers(httpx.MockTransport):
    """Gives the answers in turn, and keeps the requests."""

    def __init__(self, *answers):
        self.requests = []
        waiting = list(answers)

        def answer(request):
            self.requests.append(request)
            found = waiting.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        super().__init__(answer)


def event(name, document):
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(document).encode())


EMPTY = {"trials": [], "heads": [], "kv_bytes": 0, "tolerance": 0.1, "seconds": {}}
BUSY = {"title": "Not ready", "status": 503, "detail": "8 are waiting"}


def events(*parts):
    return streamed(iter(parts))


def streamed(parts):
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=parts)


def compared(*answers, progress=None, retries=3):
    waits, transport = [], Answers(*answers)
    with Client(transport=transport, sleep=waits.append, retries=retries) as client:
        return client.attention_compare(**SMALL, progress=progress), waits, transport.requests


def test_a_busy_service_is_asked_again():
    told = []
    busy = httpx.Response(503, headers={"retry-after": "2"}, json=BUSY)
    last = events(event("progress", {"done": 1}), event("result", EMPTY))
    found, waits, requests = compared(busy, events(event("error", BUSY)), last, progress=told.append)
    assert found.trials == []
    assert waits[0] == 2
    assert 0.1 <= waits[1] <= 0.2
    assert told == [{"done": 1}]
    assert len({request.content for request in requests}) == 1
    assert {request.headers["accept"] for request in requests} == {"text/event-stream"}


def test_a_stream_that_breaks_is_begun_anew():
    def broken():
        yield event("progress", {"done": 1})
        raise httpx.ReadError("reset")

    told, whole = [], (event("progress", {"done": 1}), event("progress", {"done": 2}), event("result", EMPTY))
    _, waits, _ = compared(streamed(broken()), events(*whole), progress=told.append)
    assert len(waits) == 1
    assert [progress["done"] for progress in told] == [1, 1, 2]
    with pytest.raises(ConnectionFailed, match="reset"):
        compared(streamed(broken()), retries=0)


def test_the_async_client_reads_events_as_the_other_does():
    told, waits = [], []
    answers = Answers(
        httpx.Response(503, json=BUSY),
        httpx.Response(200, content=event("error", BUSY)),
        httpx.Response(200, content=event("progress", {"done": 1}) + event("result", EMPTY)),
        httpx.Response(200, content=event("progress", {"done": 1})),
    )

    async def sleep(seconds):
        waits.append(seconds)

    async def ask():
        async with AsyncClient(transport=answers, sleep=sleep) as client:
            found = await client.attention_compare(**SMALL, progress=told.append)
            with pytest.raises(UnexpectedAnswer, match="without a result"):
                await client.attention_compare(**SMALL)
            return found

    assert asyncio.run(ask()).trials == []
    assert (len(waits), told) == (2, [{"done": 1}])


def test_what_progress_raises_is_never_taken_for_the_connections():
    def fail(progress):
        raise httpx.ReadError("somebody else's")

    with pytest.raises(httpx.ReadError):
        compared(events(event("progress", {}), event("result", EMPTY)), progress=fail)


@pytest.mark.parametrize("call", ["attention", "attention_plan"])
def test_other_calls_are_tried_again_too(call):
    waits, transport = [], Answers(httpx.Response(503, json=BUSY), httpx.ReadError("reset"), httpx.Response(422))
    arguments = SMALL if call == "attention" else {"layers": {0: SMALL}}
    with Client(transport=transport, sleep=waits.append) as client, pytest.raises(InvalidRequest):
        getattr(client, call)(**arguments)
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ({"status": 422, "detail": "k: why", "errors": [{"path": "k", "message": "why"}]}, InvalidRequest),
        ({"status": 503, "detail": "full"}, Overloaded),
        ({"status": 500, "detail": "an unexpected error"}, ServerFault),
        ({"status": 200, "detail": "fine"}, UnexpectedAnswer),
        ({"status": "422", "detail": "text"}, UnexpectedAnswer),
        ({}, UnexpectedAnswer),
        ([422], UnexpectedAnswer),
    ],
)
def test_the_event_error_is_raised_as_its_status_would_be(problem, kind):
    with pytest.raises(kind) as raised:
        compared(events(event("error", problem)), retries=0)
    assert type(raised.value) is kind
    if kind is InvalidRequest:
        assert str(raised.value) == "422: k: why"
        assert [(field.path, field.message) for field in raised.value.fields] == [("k", "why")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "without a result"),
        (event("progress", {"done": 1}), "without a result"),
        (b"event: result\ndata: {}\n", "without a result"),
        (b"event: result\ndata: {}\n\n", "comparison answer cannot be read: no 'trials'"),
        (b"event: result\ndata: [\n\n", "comparison answer cannot be read"),
        (b"event: progress\ndata: 3\n\n", "progress answer cannot be read"),
        (b"<html>\n<h1>nginx</h1>\n", "expected server-sent events, got a line '<html>'"),
        (b'{"trials": []}\n', "expected server-sent events"),
    ],
)
def test_a_stream_that_cannot_be_read(content, message):
    with pytest.raises(UnexpectedAnswer, match=message):
        compared(events(content), progress=lambda progress: None)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_cut_anywhere(size):
    text = (
        ": a comment\r\nid: 7\nretry: 5\nevent: result\r\ndata: [1,\ndata:2]\r\n\r\n"
        'event: lonely\n\ndata: plain\n\nevent: é\ndata: "\u2028\x85\x1c"\n\ndata: unfinished'
    ).encode()
    reader = EventReader()
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert [found for chunk in chunks for found in reader.feed(chunk)] == [
        ("result", b"[1,\n2]"),
        ("message", b"plain"),
        ("é", '"\u2028\x85\x1c"'.encode()),
    ]


def test_unknown_events_are_passed_over():
    told = []
    listener = Listener(told.append)
    listener.feed(event("heartbeat", {}) + event("progress", {"done": 1}) + event("result", EMPTY))
    assert read_comparison(listener.result()).tolerance == 0.1
    assert told == [{"done": 1}]
