"""In-place receiving over TLS, and on asyncio's own loop."""

import pytest
from probe import Served
from raw import chunked, content, digest, head, post


@pytest.fixture(
    scope="module",
    params=[
        (kind, loop, tls) for kind in ("logitd", "stock") for loop in ("uvloop", "asyncio") for tls in (False, True)
    ],
    ids=lambda case: f"{case[0]} {case[1]} {'tls' if case[2] else 'tcp'}",
)
def carried(request, certificate):
    kind, loop, tls = request.param
    with Served(kind, loop=loop, certificate=certificate if tls else None) as running:
        yield running


@pytest.mark.parametrize("length", [10, 5000, 300_000, 3_000_000])
def test_bodies_and_what_follows_them(carried, length):
    body = content(length)
    with carried.connected() as wire:
        for _ in range(2):
            wire.send(post("/probe/digest", body) + head("GET", "/probe/unread/203") + post("/probe/late", body))
            assert wire.answer().body == digest(body)
            assert wire.answer().status == 203
            assert wire.answer().body == digest(body)
        wire.send(head("POST", "/probe/digest", f"content-length: {length}"), body[:7], body[7:])
        assert wire.answer().body == digest(body)
        wire.send(head("POST", "/probe/digest", "transfer-encoding: chunked") + chunked(body[:300_000], 1000))
        assert wire.answer().body == digest(body[:300_000])


@pytest.mark.parametrize("sent", [0, 3000, 20_000])
def test_early_answers_and_leaving(carried, sent):
    with carried.connected() as wire:
        wire.send(head("POST", "/nowhere", "content-length: 9999999") + content(sent))
        assert wire.answer().status == 404
    with carried.connected() as wire:
        wire.send(head("POST", "/probe/digest", "content-length: 300000") + content(sent))
    carried.until_quiet()
