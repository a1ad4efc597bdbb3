"""Answers that come before the body: the client reads them, and both sides agree about where the next request is."""

import json

import pytest
from raw import KEY, chunked, content, digest, head, post

EXPECT = "expect: 100-continue"
JSON = "content-type: application/json"
TOO_LONG = 81 << 20
EARLY = {
    401: head("POST", "/v1/sample", JSON).replace(KEY.encode(), b"nobody"),
    404: head("POST", "/nowhere", JSON),
    405: head("POST", "/v1/info", JSON),
    415: head("POST", "/probe/digest", "content-encoding: br"),
    503: head("POST", "/probe/unread/503", JSON),
}


def asking(status, length, *headers):
    lines = "\r\n".join([f"content-length: {length}", *headers])
    return EARLY[status][:-2] + lines.encode() + b"\r\n\r\n"


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.parametrize("length", [200, 5000, 50_000])
def test_a_small_rest_is_read_and_the_connection_kept(wire, status, length):
    body = content(length)
    wire.send(asking(status, length) + body[: length // 2])
    answer = wire.answer()
    assert answer.status == status
    assert answer.headers.get("connection") != "close"
    wire.send(body[length // 2 :] + post("/probe/digest", body))
    assert wire.answer().body == digest(body)
    assert wire.is_open()


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.parametrize("length", [200_000, 50_000_000])
def test_a_large_rest_ends_the_connection(served, wire, status, length):
    wire.send(asking(status, length) + content(150))
    answer = wire.answer()
    assert answer.status == status
    # uvicorn would read all of it, to keep the connection.
    assert (answer.headers.get("connection") == "close") == (served.kind == "logitd")
    if served.kind == "logitd":
        wire.send(*[content(1000)] * 10)  # it may go on sending for a while without losing the answer
        wire.socket.shutdown(1)
        assert wire.rest() == b""


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.parametrize("length", [200, 5000, 50_000_000])
def test_no_100_before_an_early_answer(served, wire, status, length):
    wire.send(asking(status, length, EXPECT))
    answer = wire.answer()
    assert (answer.status, answer.informed) == (status, [])
    # Whether the body comes now is the client's to choose: nobody can say what the next byte is, save by closing.
    assert (answer.headers.get("connection") == "close") == (served.kind == "logitd")


@pytest.mark.parametrize("length", [1, 4096, 5000, 300_000])
@pytest.mark.parametrize("path", ["/probe/digest", "/probe/stream", "/probe/late"])
def test_100_when_the_body_is_asked_for(wire, path, length):
    body = content(length)
    for _ in range(2):
        wire.send(head("POST", path, f"content-length: {length}", EXPECT))
        wire.socket.settimeout(10)
        assert wire.socket.recv(25, 2) == b"HTTP/1.1 100 Continue\r\n\r\n"  # seen, not taken
        wire.send(body)
        answer = wire.answer()
        assert (answer.informed, answer.body) == ([100], digest(body))


@pytest.mark.parametrize("length", [1, 5000])
def test_a_client_that_expects_100_need_not_wait_for_it(wire, length):
    body = content(length)
    wire.send(post("/probe/digest", body, EXPECT), head("GET", "/probe/empty"))
    answer = wire.answer()
    assert (answer.body, set(answer.informed) <= {100}) == (digest(body), True)
    assert wire.answer().status == 200


def test_no_100_for_a_length_beyond_the_limit(served, wire):
    wire.send(head("POST", "/v1/sample", JSON, f"content-length: {TOO_LONG}", EXPECT))
    answer = wire.answer()
    assert (answer.status, answer.informed) == (413, [])
    assert json.loads(answer.body)["status"] == 413


def test_a_client_that_writes_everything_first_reads_its_413(ours):
    with ours.connected() as wire:
        wire.send(head("POST", "/v1/sample", JSON, f"content-length: {TOO_LONG}"))
        for _ in range(200):
            wire.send(bytes(1 << 16))
        assert wire.answer().status == 413


@pytest.mark.parametrize("path", ["/nowhere", "/v1/sample"])
def test_chunks_without_end_are_not_read_to_their_end(served, wire, path):
    wire.send(head("POST", path, JSON, "transfer-encoding: chunked"))
    piece = b"%x\r\n" % 50_000 + content(50_000) + b"\r\n"
    for _ in range(10):  # 500 kB: more than a chunked body may be
        wire.send(piece)
    answer = wire.answer()
    assert answer.status == (404 if path == "/nowhere" else 413)
    assert (answer.headers.get("connection") == "close") == (served.kind == "logitd")


def test_short_chunks_that_nobody_reads_are_no_reason_to_close(wire):
    wire.send(head("POST", "/nowhere", "transfer-encoding: chunked") + chunked(content(500), 100))
    assert wire.answer().status == 404
    assert wire.is_open()
