"""Compressed bodies, on both protocols: read if they are one whole stream, and never larger than a body may be."""

import asyncio
import gzip
import json
import zlib

import pytest
from probe import Served, eventually
from raw import chunked, content, digest, head, post

from logitd.errors import Malformed, PayloadTooLarge
from logitd.http.inflating import inflated

PACKED = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "GZIP": gzip.compress}


@pytest.mark.parametrize("length", [0, 1, 5000, 65_535, 65_536, 65_537, 1_000_000, 5_000_000])
@pytest.mark.parametrize("coding", PACKED)
def test_a_compressed_body_is_read(wire, coding, length):
    body = content(length)
    wire.send(post("/probe/digest", PACKED[coding](body), f"content-encoding: {coding}"))
    answer = wire.answer()
    assert (answer.status, answer.body, answer.headers["x-length"]) == (200, digest(body), str(length))


def test_a_compressed_body_in_chunks(wire):
    packed = gzip.compress(content(200_000))
    wire.send(head("POST", "/probe/digest", "transfer-encoding: chunked", "content-encoding: gzip"))
    wire.send(chunked(packed, 999))
    assert wire.answer().body == digest(content(200_000))


def test_a_compressed_sample(wire):
    body = gzip.compress(json.dumps({"logits": [[1, 5, 2]], "params": {"temperature": 0}}).encode())
    wire.send(post("/v1/sample", body, "content-encoding: gzip", "content-type: application/json"))
    assert json.loads(wire.answer().body)["rows"][0]["token"] == 1


@pytest.mark.parametrize(
    "coding", ["br", "zstd", "compress", "gzip, gzip", "gzip, deflate", "chunked", "*", "gzip;q=1"]
)
def test_another_coding_is_refused_before_the_body(wire, coding):
    wire.send(
        head("POST", "/probe/digest", f"content-encoding: {coding}", "content-length: 30", "expect: 100-continue")
    )
    answer = wire.answer()
    assert (answer.status, answer.informed) == (415, [])


GZIP, ZLIB = gzip.compress(content(3000)), zlib.compress(content(3000))
BROKEN = {
    "empty": b"",
    "not compressed": content(3000),
    "json": b'{"logits": [[1]]}',
    "raw deflate": ZLIB[2:-4],
    "cut": GZIP[:-1],
    "cut early": GZIP[:5],
    "checksum missing": ZLIB[:-4],
    "wrong checksum": GZIP[:-8] + bytes(8),
    "a byte changed": GZIP[:100] + bytes([GZIP[100] ^ 255]) + GZIP[101:],
    "two members": GZIP + GZIP,
    "something behind": GZIP + b"x",
    "something behind, apart": zlib.compress(content(100)) + bytes(200_000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_refused(wire, name):
    wire.send(post("/probe/digest", BROKEN[name], "content-encoding: gzip"))
    assert wire.answer().status == 400
    assert wire.is_open()


def test_a_bomb_is_not_kept(wire):
    bomb = gzip.compress(bytes(100 << 20), 9)  # 100 kB
    wire.send(post("/probe/digest", bomb, "content-encoding: gzip"))
    answer = wire.answer()
    assert (answer.status, json.loads(answer.body)["errors"][0]["path"]) == (413, "body")
    assert wire.is_open()


def test_what_a_body_inflates_to_is_counted_in():
    """Another request has half of the room, and the packed one, small as it comes, does not fit beside it."""
    row = json.dumps({"logits": [[1, 5, 2]], "params": {"temperature": 0}}).encode()
    packed = gzip.compress(row + b" " * (3 << 19))
    request = post("/v1/sample", packed, "content-encoding: gzip", "content-type: application/json")
    with Served("logitd", max_inflight_bytes=2 << 20, max_json_bytes=4 << 20) as running:
        with running.connected() as other, running.connected() as wire:
            other.send(head("POST", "/v1/sample", f"content-length: {1 << 20}"))
            eventually(lambda: running.metric("logitd_inflight_bytes") == 1 << 20)
            wire.send(request)
            answer = wire.answer()
            assert (answer.status, int(answer.headers["retry-after"])) == (429, 1)
            assert running.metric("logitd_inflight_bytes") == 1 << 20
            other.socket.close()
            eventually(lambda: running.metric("logitd_inflight_bytes") == 0)
            wire.send(request)
            assert wire.answer().status == 200
        running.until_quiet()
        assert running.metric("logitd_inflight_bytes") == 0


def test_the_bytes_are_asked_for_before_they_come():
    asked, body = [], bytes(5_000_000)
    packed = zlib.compress(body)
    assert len(asyncio.run(inflated(memoryview(packed), 6_000_000, asked.append))) == len(body)
    assert asked == [*(len(packed) + (1 << 16) + (step << 20) + 1 for step in range(1, 6)), len(body)]

    def refuse(size):
        raise PayloadTooLarge.at("body", f"no room for {size}")

    with pytest.raises(PayloadTooLarge, match="no room"):
        asyncio.run(inflated(memoryview(packed), 6_000_000, refuse))


def inflate(packed, limit):
    return bytes(asyncio.run(inflated(memoryview(packed), limit)))


@pytest.mark.parametrize("length", [0, 1, 1000, 65_536, 200_000, 3 << 20])
@pytest.mark.parametrize("make", [content, bytes], ids=["dense", "zeros"])
def test_the_limit_is_exact(length, make):
    body = make(length)
    for pack in (gzip.compress, zlib.compress):
        assert inflate(pack(body), max(length, 1)) == body
        if length > 1:
            with pytest.raises(PayloadTooLarge):
                inflate(pack(body), length - 1)


def test_every_cut_is_noticed():
    packed = zlib.compress(content(100_000), 1)
    for end in [*range(300), *range(300, len(packed), 997), len(packed) - 1]:
        with pytest.raises(Malformed):
            inflate(packed[:end], 1 << 20)
