"""Bodies of many lengths, in many pieces, on both protocols: what was sent arrives, and so does the next request."""

import random

import pytest
from raw import chunked, content, digest, head, post

LENGTHS = [0, 1, 100, 4095, 4096, 4097, 5000, 16_100, 16_384, 40_000, 70_000, 300_000]
NEXT = head("GET", "/probe/unread/203")


def pieces(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


def whole(request, body):
    return [request + body]


def head_apart(request, body):
    return [request, body]


def head_in_bytes(request, body):
    return [*pieces(request, 1), body]


def in_halves(request, body):
    middle = (len(request) + len(body)) // 2
    data = request + body
    return [data[:middle], data[middle:]]


def in_pieces(request, body):
    return pieces(request + body, 1000)


def last_byte_apart(request, body):
    return [(request + body)[:-1], (request + body)[-1:]]


def first_byte_with_the_head(request, body):
    return [request + body[:1], body[1:]]


WAYS = [whole, head_apart, head_in_bytes, in_halves, in_pieces, last_byte_apart, first_byte_with_the_head]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_body_arrives_as_it_was_sent(served, wire, way, length):
    body = content(length)
    request = head("POST", "/probe/digest", f"content-length: {length}")
    for _ in range(2):  # and the connection is good for another
        wire.send(*way(request, body))
        answer = wire.answer()
        assert (answer.status, answer.body) == (200, digest(body))
        assert answer.headers["x-length"] == str(length)
        assert answer.headers["x-staged"] == str(served.kind == "logitd" and length > 4096)


@pytest.mark.parametrize("length", [1, 4096, 4097, 40_000])
@pytest.mark.parametrize("way", [whole, in_halves, in_pieces], ids=lambda way: way.__name__)
def test_the_next_request_comes_in_the_same_write(wire, way, length):
    body = content(length)
    request = head("POST", "/probe/digest", f"content-length: {length}")
    wire.send(*way(request, body + NEXT + request + body + NEXT))
    for _ in range(2):
        assert wire.answer().body == digest(body)
        assert wire.answer().status == 203


@pytest.mark.parametrize("cut", range(-5, 6))
@pytest.mark.parametrize("length", [4000, 9000])
def test_cut_around_the_end_of_the_headers(wire, length, cut):
    body = content(length)
    request = head("POST", "/probe/digest", f"content-length: {length}")
    data = request + body
    wire.send(data[: len(request) + cut], data[len(request) + cut :])
    assert wire.answer().body == digest(body)


@pytest.mark.parametrize("length", [50, 5000])
def test_byte_by_byte(wire, length):
    body = content(length)
    wire.send(*pieces(post("/probe/digest", body) + NEXT, 1))
    assert wire.answer().body == digest(body)
    assert wire.answer().status == 203


@pytest.mark.parametrize("path", ["/probe/digest", "/probe/stream", "/probe/late"])
@pytest.mark.parametrize("size", [1, 7, 1000, 70_000])
def test_chunks(wire, path, size):
    body = content(300 if size == 1 else 90_000)
    wire.send(head("POST", path, "transfer-encoding: chunked") + chunked(body, size) + NEXT)
    assert wire.answer().body == digest(body)
    assert wire.answer().status == 203


@pytest.mark.parametrize("length", [100, 5000, 300_000])
@pytest.mark.parametrize("path", ["/probe/stream", "/probe/late"])
def test_a_body_that_is_read_otherwise_or_later(wire, path, length):
    body = content(length)
    for _ in range(2):
        wire.send(post(path, body))
        assert wire.answer().body == digest(body)


@pytest.mark.parametrize("seed", range(20))
def test_a_pipeline_in_random_pieces(wire, seed):
    chance = random.Random(seed)
    sent, expected = b"", []
    for place in range(chance.randint(2, 6)):
        body = content(chance.choice([1, 500, 4096, 4097, 9000, 30_000]), place)
        kind = chance.choice(["declared", "chunked", "none", "late"])
        if kind == "none":
            sent += NEXT
            expected.append(b"unread")
            continue
        path = "/probe/late" if kind == "late" else "/probe/digest"
        is_chunked = kind == "chunked"
        request = head("POST", path, "transfer-encoding: chunked") + chunked(body, 999)
        sent += request if is_chunked else post(path, body)
        expected.append(digest(body))
    places = sorted(chance.sample(range(1, len(sent)), chance.randint(0, 8)))
    wire.send(*(sent[begin:end] for begin, end in zip([0, *places], [*places, len(sent)], strict=True)))
    assert [wire.answer().body for _ in expected] == expected
    assert wire.is_open()


def test_four_mebibytes_in_small_writes(wire):
    body = content(4 << 20)
    wire.send(head("POST", "/probe/digest", f"content-length: {len(body)}"), *pieces(body, 256))
    assert wire.answer().body == digest(body)


@pytest.mark.long
def test_sixty_four_mebibytes_in_small_writes(wire):
    body = content(64 << 20)
    wire.send(head("POST", "/probe/digest", f"content-length: {len(body)}"), *pieces(body, 256))
    assert wire.answer().body == digest(body)


def test_an_answer_comes_in_one_piece(ours):
    """Head and body are written together: one system call, and the client wakes up once."""
    with ours.connected() as connection:
        for _ in range(5):
            connection.send(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            piece = connection.socket.recv(1 << 16)
            head, _, body = piece.partition(b"\r\n\r\n")
            assert b"200 OK" in head
            assert len(body) == int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
