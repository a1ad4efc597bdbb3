"""What is not one request to everybody is refused; what is odd but clear is answered; on both protocols."""

import json

import pytest
from raw import chunked, content, digest, head, post

BODY = content(5000)

UNCLEAR = {
    "length beside chunked": head("POST", "/probe/digest", "content-length: 5", "transfer-encoding: chunked"),
    "chunked beside length": head("POST", "/probe/digest", "transfer-encoding: chunked", "content-length: 5"),
    "two lengths": head("POST", "/probe/digest", "content-length: 5", "content-length: 6"),
    "the same length twice": head("POST", "/probe/digest", "content-length: 5", "content-length: 5"),
    "a list of lengths": head("POST", "/probe/digest", "content-length: 5, 5"),
    "length with a sign": head("POST", "/probe/digest", "content-length: +5"),
    "negative length": head("POST", "/probe/digest", "content-length: -5"),
    "hexadecimal length": head("POST", "/probe/digest", "content-length: 0x5"),
    "length with an exponent": head("POST", "/probe/digest", "content-length: 1e3"),
    "length in words": head("POST", "/probe/digest", "content-length: five"),
    "length with a gap": head("POST", "/probe/digest", "content-length: 5 5"),
    "empty length": head("POST", "/probe/digest", "content-length:"),
    "length of 2^64": head("POST", "/probe/digest", f"content-length: {1 << 64}"),
    "length of 30 digits": head("POST", "/probe/digest", "content-length: " + "9" * 30),
    "chunked is not last": head("POST", "/probe/digest", "transfer-encoding: chunked, gzip"),
    "folded header": head("POST", "/probe/digest", "a: b\r\n c", "content-length: 5"),
    "space before the colon": head("POST", "/probe/digest", "content-length : 5"),
    "header without a name": head("POST", "/probe/digest", ": x", "content-length: 5"),
    "header without a colon": head("POST", "/probe/digest", "nothing", "content-length: 5"),
    "nul in a header": head("POST", "/probe/digest", "a: b\0c"),
    "bare line feeds": head("GET", "/probe/empty").replace(b"\r\n", b"\n"),
    "bare carriage return": head("GET", "/probe/empty", "a: b\rc: d"),
    "no such method": head("FETCH", "/probe/empty"),
    "no target": head("GET", ""),
    "another protocol": b"GET / HTCPCP/1.0\r\n\r\n",
    "version 9": head("GET", "/probe/empty", version="9.9"),
    "the start of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "the start of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
    "chunk size that is none": head("POST", "/probe/digest", "transfer-encoding: chunked") + b"x\r\n",
    "chunk of another size": head("POST", "/probe/digest", "transfer-encoding: chunked") + b"3\r\nabcdef\r\n",
    "chunk size of 30 digits": head("POST", "/probe/digest", "transfer-encoding: chunked") + b"f" * 30 + b"\r\n",
}

OURS_ALONE = {  # uvicorn answers these; httptools' reading of them is not everybody's
    "chunked twice": head("POST", "/probe/digest", "transfer-encoding: chunked, chunked") + chunked(BODY, 100),
    "gzip and chunked": head("POST", "/probe/digest", "transfer-encoding: gzip, chunked") + chunked(BODY, 100),
    "version 2": head("GET", "/probe/empty", version="2.0"),
    "version 0.9": head("GET", "/probe/empty", version="0.9"),
    "chunked in HTTP/1.0": head("POST", "/probe/digest", "transfer-encoding: chunked", version="1.0") + b"0\r\n\r\n",
    "chunked with an upgrade": head(
        "POST", "/probe/digest", "transfer-encoding: chunked", "connection: upgrade", "upgrade: h2c"
    )
    + chunked(BODY, 100),
    "a chunk extension of 200 kB": head("POST", "/probe/digest", "transfer-encoding: chunked")
    + b"5;"
    + b"x" * 200_000
    + b"\r\nabcde\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("before", [False, True], ids=["first", "after another"])
@pytest.mark.parametrize("name", UNCLEAR)
def test_refused_with_400_and_closed(served, wire, name, before):
    if before:
        wire.send(head("GET", "/probe/empty"))
        assert wire.answer().status == 200
    wire.send(UNCLEAR[name])
    answer = wire.answer()
    assert answer.status == 400
    assert answer.headers["connection"] == "close"
    if served.kind == "logitd":
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.body)["type"] == "urn:logitd:problem:malformed"
    wire.socket.shutdown(1)
    assert wire.rest() == b""


@pytest.mark.parametrize("name", OURS_ALONE)
def test_refused_by_ours_alone(ours, name):
    with ours.connected() as wire:
        wire.send(OURS_ALONE[name])
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")


def test_a_refusal_waits_for_the_answers_before_it(ours):
    # uvicorn writes its 400 at once, before the answer that is due first, and drops that.
    with ours.connected() as wire:
        wire.send(post("/probe/late", BODY) + post("/probe/late", b"x") + b"nonsense\r\n\r\n")
        assert [wire.answer().body, wire.answer().body] == [digest(BODY), digest(b"x")]
        assert wire.answer().status == 400
        wire.socket.shutdown(1)
        assert wire.rest() == b""


@pytest.mark.parametrize("length", [5, 5000])
def test_spaces_around_a_length(wire, length):
    wire.send(head("POST", "/probe/digest", f"content-length: \t {length} \t") + content(length))
    assert wire.answer().body == digest(content(length))


@pytest.mark.parametrize("path", ["/probe/empty", "/probe/unread/200", "/health/live", "/v1/info"])
def test_head_has_no_body(wire, path):
    for method in ("HEAD", "GET"):
        wire.send(head(method, path))
        assert wire.answer(method).status in (200, 405)
    assert wire.is_open()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("length", [0, 10, 5000])
def test_http_1_0_ends_the_connection(wire, length, keep):
    extra = ["connection: keep-alive"] if keep else []
    body = content(length)
    wire.send(head("POST", "/probe/digest", f"content-length: {length}", *extra, version="1.0", host=False) + body)
    answer = wire.answer()
    assert (answer.status, answer.body, answer.headers["connection"]) == (200, digest(body), "close")
    assert wire.rest() == b""


@pytest.mark.parametrize("length", [0, 10, 5000, 300_000])
def test_connection_close_is_kept(wire, length):
    body = content(length)
    wire.send(post("/probe/digest", body, "connection: close"))
    answer = wire.answer()
    assert (answer.body, answer.headers["connection"]) == (digest(body), "close")
    assert wire.rest() == b""


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
def test_an_upgrade_is_not_taken(wire, protocol):
    wire.send(head("GET", "/probe/empty", "connection: upgrade", f"upgrade: {protocol}"))
    assert wire.answer().status == 200


@pytest.mark.parametrize("length", [3, 5000])
def test_after_an_upgrade_the_connection_goes_on(ours, length):
    # uvicorn hears nothing more on such a connection, and the body is not part of the request to it.
    asked = ["connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"]
    with ours.connected() as wire:
        for _ in range(2):
            wire.send(post("/probe/digest", content(length), *asked) + head("GET", "/probe/unread/203", *asked))
            assert wire.answer().body == digest(content(length))
            assert wire.answer().status == 203
        assert wire.is_open()


def test_connect_is_no_tunnel(served, wire):
    wire.send(head("CONNECT", "example:443"))
    assert wire.answer().status >= 400


@pytest.mark.parametrize(("size", "status"), [(10_000, 200), (60_000, 200), (70_000, 431), (300_000, 431)])
@pytest.mark.parametrize("way", ["one", "many", "target"])
def test_headers_have_a_limit(ours, size, status, way):
    fields = [f"x-{place}: {'a' * (size // 50)}" for place in range(50)]
    with ours.connected() as wire:
        if way == "target":
            wire.send(head("GET", "/probe/empty?" + "a" * size))
        else:
            wire.send(head("GET", "/probe/empty", *(fields if way == "many" else ["x: " + "a" * size])))
        answer = wire.answer()
        assert answer.status == status
        assert (answer.headers.get("connection") == "close") == (status == 431)
        if status == 431:
            assert json.loads(answer.body)["title"] == "Request header fields too large"


def test_headers_that_never_end_are_refused_on_the_way(ours):
    with ours.connected() as wire:
        wire.send(head("GET", "/probe/empty")[:-2], *[b"a: " + b"b" * 1000 + b"\r\n"] * 120)
        assert wire.answer().status == 431


@pytest.mark.parametrize(("count", "status"), [(90, 200), (200, 431)])
def test_header_fields_are_counted(ours, count, status):
    with ours.connected() as wire:
        wire.send(head("GET", "/probe/empty", *["a: b"] * count))
        assert wire.answer().status == status


def test_uvicorn_takes_any_headers(served, wire):
    wire.send(head("GET", "/probe/empty", "x: " + "a" * 300_000))
    assert wire.answer().status == {"logitd": 431, "stock": 200}[served.kind]


def test_trailers_are_dropped(ours):
    with ours.connected() as wire:
        wire.send(
            head("POST", "/probe/digest", "transfer-encoding: chunked") + b"3\r\nabc\r\n0\r\nx-api-key: y\r\n\r\n"
        )
        assert wire.answer().body == digest(b"abc")
        assert wire.is_open()


@pytest.mark.parametrize("count", [1000, 70_000])
def test_chunks_are_counted(ours, count):
    with ours.connected() as wire:
        wire.send(head("POST", "/probe/digest", "transfer-encoding: chunked") + chunked(b"a" * count, 1))
        answer = wire.answer()
        assert answer.status == (200 if count == 1000 else 413)
        assert wire.is_open() == (count == 1000)


def test_blank_lines_before_a_request(wire):
    for _ in range(3):
        wire.send(b"\r\n\r\n", b"\r\n" + post("/probe/digest", BODY))
        assert wire.answer().body == digest(BODY)
