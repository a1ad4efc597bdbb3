"""Clients that leave, dawdle or read slowly: the others are served, and nothing of them is left behind."""

import gc
import random
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from probe import Served, eventually
from raw import content, digest, head, post

BODY = content(40_000)
REQUESTS = {
    "declared": post("/probe/digest", BODY),
    "small": post("/probe/digest", BODY[:2000]),
    "late": post("/probe/late", BODY),
    "chunked": head("POST", "/probe/digest", "transfer-encoding: chunked") + b"2710\r\n" + BODY[:10_000] + b"\r\n",
    "pipelined": post("/probe/late", BODY) + post("/probe/late", BODY) + head("GET", "/probe/empty"),
    "real": post("/v1/sample", b'{"logits": [[' + b"1, " * 3000 + b"1]]}", "content-type: application/json"),
}


def cut(connection, hard):
    if hard:  # a reset instead of an orderly end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("hard", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("name", REQUESTS)
def test_gone_at_many_offsets(served, name, hard):
    request = REQUESTS[name]
    served.until_quiet()
    files = served.open_files()
    offsets = [*range(1, 60, 7), *(len(request) * part // 25 for part in range(1, 26))]
    for offset in offsets:
        with served.connected() as wire:
            wire.send(request[:offset])
            cut(wire.socket, hard)
    served.until_quiet()
    assert served.open_files() == files
    with served.connected() as wire:
        wire.send(REQUESTS["declared"])
        assert wire.answer().body == digest(BODY)


@pytest.mark.long
def test_two_thousand_gone_at_random_offsets(served):
    chance = random.Random(0)

    def round_of(count):
        for _ in range(count):
            request = REQUESTS[chance.choice(list(REQUESTS))]
            with served.connected() as wire:
                wire.send(request[: chance.randrange(1, len(request))])
                cut(wire.socket, chance.random() < 0.5)
        served.until_quiet()
        gc.collect()

    round_of(500)
    files, memory = served.open_files(), resident_bytes()
    round_of(2000)
    assert served.open_files() == files
    assert resident_bytes() - memory < 16 << 20


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("length", [100, 9000])
def test_a_client_that_leaves_after_its_body_is_noticed(served, length):
    with served.connected() as wire:
        wire.send(post("/probe/leaving", content(length)))
        eventually(lambda: len(served.server.server_state.tasks) == 1)
    served.until_quiet()


def test_a_hundred_at_once(served):
    sent, failed = [content(20_000, seed) for seed in range(8)], []

    def client(seed):
        with served.connected() as wire:
            for body in sent:
                wire.send(post("/probe/digest", body))
                if wire.answer().body != digest(body):
                    failed.append(seed)

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(100)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert not failed


@pytest.mark.parametrize("count", [1, 200])
def test_a_slow_reader_gets_all_of_a_large_answer(served, count):
    with served.connected() as wire:
        wire.send(head("GET", f"/probe/large/{count}") + post("/probe/digest", BODY))
        time.sleep(0.1)  # its answer fills every buffer on the way
        with served.connected() as other:
            assert other.is_open()
        assert wire.answer().body == bytes(range(256)) * 256 * count
        assert wire.answer().body == digest(BODY)


@pytest.fixture(scope="module")
def hasty():
    """A service on our protocol that waits for nobody."""
    with Served("logitd", header_timeout_seconds=0.2, body_timeout_seconds=0.2) as running:
        yield running


@pytest.mark.parametrize("sent", [1, 10, 70])
def test_slow_headers(hasty, sent):
    request = head("POST", "/probe/digest", "content-length: 5000")
    with hasty.connected() as wire:
        wire.send(request[:sent])
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert wire.rest() == b""


def test_headers_that_drip_get_no_more_time(hasty):
    with hasty.connected() as wire:
        wire.send(head("GET", "/probe/empty"))
        assert wire.answer().status == 200
        wire.socket.settimeout(0.02)
        began = time.monotonic()
        answered = False
        for byte in head("GET", "/probe/empty", "a: " + "b" * 1000):
            wire.send(bytes([byte]))
            try:
                answered = b"408" in wire.socket.recv(1000)
                break
            except TimeoutError:
                assert time.monotonic() - began < 10
    assert answered


def drip(wire, piece):
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        wire.send(piece)
        time.sleep(0.02)


def test_empty_lines_are_allowed_and_no_sign_of_life():
    with Served("logitd") as running:
        running.server.config.timeout_keep_alive = 0.3
        with running.connected() as wire:
            wire.send(b"\r\n" * 3)
            assert wire.is_open()
            with pytest.raises(ConnectionError):
                drip(wire, b"\r\n")


@pytest.mark.parametrize("length", [100, 5000, 300_000])
@pytest.mark.parametrize("sent", [0, 50])
def test_a_slow_body(hasty, length, sent):
    with hasty.connected() as wire:
        wire.send(head("POST", "/probe/digest", f"content-length: {length}") + content(sent))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        wire.send(content(50))  # late: nobody takes it for a request, nor writes it anywhere
        wire.socket.shutdown(1)
        assert wire.rest() == b""


def test_a_small_rest_that_does_not_come_ends_the_connection(hasty):
    with hasty.connected() as wire:
        wire.send(head("POST", "/probe/unread/200", "content-length: 5000") + content(10))
        assert wire.answer().status == 200
        assert wire.rest() == b""


def test_a_long_answer_is_no_slow_request(hasty):
    with hasty.connected() as wire:
        wire.send(post("/probe/late", BODY) * 10 + head("GET", "/probe/empty")[:-10])
        for _ in range(10):  # half a second: longer than headers may take, were they read
            assert wire.answer().body == digest(BODY)
        wire.send(head("GET", "/probe/empty")[-10:])
        assert wire.answer().status == 200


def test_a_connection_that_lingers_ends(hasty):
    with hasty.connected() as wire:
        wire.send(head("POST", "/nowhere", "content-length: 9999999"))
        assert wire.answer().status == 404
        began = time.monotonic()
        assert wire.rest() == b""
        assert time.monotonic() - began < 10
    hasty.until_quiet()


def test_the_service_stops_with_bodies_on_their_way():
    with Served("logitd") as running, running.connected() as wire, running.connected() as idle:
        wire.send(head("POST", "/probe/digest", "content-length: 50000") + content(9000))
        assert idle.is_open()
        eventually(lambda: len(running.server.server_state.tasks) == 1)
        running.server.should_exit = True
        assert idle.rest() == b""
        wire.send(content(50_000)[9000:])
        answer = wire.answer()
        assert (answer.body, answer.headers["connection"]) == (digest(content(50_000)), "close")
        assert wire.rest() == b""
