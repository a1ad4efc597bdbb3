"""The extension that receives a body in place: when it reads, where it writes, and what it refuses to do."""

import asyncio

import pytest
from probe import Served
from raw import content, digest, head, post

from logitd.http.receiving import RECEIVE_INTO

READ_BYTES = 1 << 18


@pytest.fixture(scope="module")
def running():
    """A service on our protocol, with routes that use the extension themselves."""
    with Served("logitd", probes=in_place) as served:
        yield served


async def in_place(scope, receive, send):
    """Answer with what became of the body, by what the path asks for."""
    extensions = scope.get("extensions", {})
    answer = await WAYS[scope["path"]](extensions[RECEIVE_INTO], receive) if RECEIVE_INTO in extensions else b"parsed"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


async def whole(receive_into, receive):
    body = bytearray(20_000)
    await receive_into(memoryview(body))
    return digest(body)


async def late(receive_into, receive):
    await asyncio.sleep(0.5)
    body = bytearray(64 << 20)
    await receive_into(memoryview(body))
    return digest(body)


async def given_up(receive_into, receive):
    body = bytearray(20_000)
    try:
        async with asyncio.timeout(0.1):
            await receive_into(memoryview(body))
    except TimeoutError:
        came = bytes(body)
        await receive()  # what comes now comes here
        return b"%d of its own, then %d" % (came.rstrip(b"\0") == content(5000), bytes(body) == came)


async def given_up_in_the_flood(receive_into, receive):
    body = bytearray(64 << 20)  # which gives way to others after each read
    try:
        async with asyncio.timeout(0.02):
            await receive_into(memoryview(body))
    except TimeoutError:
        came = digest(body)
        await asyncio.sleep(0.1)
        return b"as it was" if digest(body) == came else b"written to"
    return b"all of it"


async def in_steps(receive_into, receive):
    """Answer with the most that came while the rest of the event loop could not do anything."""
    body, arriving = bytearray(64 << 20), receive_into.__self__
    largest, before = 0, arriving.received
    receiving = asyncio.ensure_future(receive_into(memoryview(body)))
    while not receiving.done():
        await asyncio.sleep(0)
        largest, before = max(largest, arriving.received - before), arriving.received
    await receiving
    return b"%d %s" % (largest, digest(body))


async def misused(receive_into, receive):
    refused = []
    for length in (19_999, 20_001, 0):
        with pytest.raises(RuntimeError) as error:
            await receive_into(memoryview(bytearray(length)))
        refused.append(error)
    body = bytearray(20_000)
    await receive_into(memoryview(body))
    with pytest.raises(RuntimeError):
        await receive_into(memoryview(bytearray(20_000)))
    return digest(body)


async def after_a_part(receive_into, receive):
    part = (await receive())["body"]
    with pytest.raises(RuntimeError):
        await receive_into(memoryview(bytearray(20_000)))
    while len(part) < 20_000:
        part += (await receive())["body"]
    return digest(part)


ALL = (whole, late, given_up, given_up_in_the_flood, in_steps, misused, after_a_part)
WAYS = {f"/probe/{way.__name__}": way for way in ALL}


@pytest.mark.parametrize("way", ["whole", "misused", "after_a_part"])
def test_a_body_is_received_once(running, way):
    body = content(20_000)
    with running.connected() as wire:
        for _ in range(2):
            wire.send(post(f"/probe/{way}", body))
            assert wire.answer().body == digest(body)


def test_a_small_body_has_no_extension(running):
    with running.connected() as wire:
        wire.send(post("/probe/whole", content(4096)))
        assert wire.answer().body == b"parsed"


def as_much_as_goes(connection, body):
    connection.settimeout(0.2)
    sent = 0
    try:
        while sent < len(body):
            sent += connection.send(body[sent : sent + 65_536])
    except TimeoutError:
        pass
    return sent


def test_nothing_is_read_before_the_application_asks(running):
    body = content(64 << 20)
    with running.connected() as wire:
        wire.send(head("POST", "/probe/late", f"content-length: {len(body)}"))
        sent = as_much_as_goes(wire.socket, body)
        assert sent < 32 << 20  # what the sockets themselves hold
        wire.socket.settimeout(20)
        wire.send(body[sent:])
        assert wire.answer().body == digest(body)


def test_a_body_that_was_given_up_is_not_written_any_more(running):
    with running.connected() as wire:
        wire.send(head("POST", "/probe/given_up", "content-length: 20000") + content(5000))
        wire.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.socket.recv(1)
        wire.socket.settimeout(20)
        wire.send(b"x" * 15_000)
        assert wire.answer().body == b"1 of its own, then 1"


def test_a_large_body_that_was_given_up_is_not_written_any_more(running):
    body = content(64 << 20)
    with running.connected() as wire:
        wire.send(head("POST", "/probe/given_up_in_the_flood", f"content-length: {len(body)}"))
        as_much_as_goes(wire.socket, body[: 48 << 20])
        wire.socket.settimeout(20)
        assert wire.answer().body == b"as it was"


def test_a_large_body_lets_the_others_of_the_event_loop_go_first(running):
    body = content(64 << 20)
    with running.connected() as wire:
        wire.send(post("/probe/in_steps", body))
        largest, came = wire.answer().body.split()
    assert came == digest(body)
    assert 0 < int(largest) <= READ_BYTES
