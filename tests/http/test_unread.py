"""Clients that do not read their answers are cut off; those that read slowly, or have nothing to read, are not."""

import asyncio
import logging
import socket
import time
from contextlib import ExitStack

import httpx
import numpy as np
import pytest
from fastapi import Response
from probe import SETTINGS, Served, eventually, reading
from raw import digest, head, post
from running import running, until
from wire import SAFETENSORS, packed

from logitd.api.events import ReaderLeftError, event_stream
from logitd.settings import Settings

TIMEOUT_SECONDS = 0.6
LARGE_BYTES = 24 << 20  # more than the buffers of two sockets take
CUT = 'logitd_cancelled_total{stage="writing"}'


class Told:
    """What became of the work behind streams of events."""

    given_up = 0


def answering():
    """Routes with answers that are too large to be sent at once."""
    app = reading(Settings(**SETTINGS))

    @app.get("/probe/whole")
    async def whole():
        return Response(bytes(LARGE_BYTES))

    @app.get("/probe/last")
    async def last():
        return Response(bytes(LARGE_BYTES), headers={"connection": "close"})

    @app.get("/probe/events")
    async def events():
        async def work(tell):
            for _ in range(LARGE_BYTES >> 20):
                tell("progress", {"text": "x" * (1 << 20)})
            try:
                while True:
                    tell("progress", {})
                    await asyncio.sleep(0.02)
            except ReaderLeftError:
                Told.given_up += 1
                raise

        return event_stream(work, ExitStack())

    return app


@pytest.fixture(scope="module", params=[False, True], ids=["tcp", "tls"])
def impatient(request, certificate):
    """A service on our protocol that soon gives up who does not read."""
    settings = {"certificate": certificate if request.param else None, "write_timeout_seconds": TIMEOUT_SECONDS}
    with Served("logitd", probes=answering(), **settings) as running:
        yield running


WANTED = {
    "parts": head("GET", "/probe/large/400"),
    "whole": head("GET", "/probe/whole"),
    "last": head("GET", "/probe/last"),
    "events": head("GET", "/probe/events"),
    "pipelined": head("GET", "/probe/whole") * 3,
}


def test_who_never_reads_is_cut_counted_and_forgotten(impatient, caplog):
    caplog.set_level(logging.INFO, "logitd.http")
    cut, given_up = impatient.metric(CUT), Told.given_up
    impatient.until_quiet()
    files = impatient.open_files()
    with ExitStack() as mute:
        wires = [mute.enter_context(impatient.connected()) for _ in WANTED]
        for wire, request in zip(wires, WANTED.values(), strict=True):
            wire.send(request)
        with impatient.connected() as other:
            assert other.is_open()
        impatient.until_quiet()
    assert impatient.open_files() == files
    assert impatient.metric(CUT) == cut + len(WANTED)
    eventually(lambda: Told.given_up == given_up + 1)
    assert [record.message for record in caplog.records] == ["cut: nobody reads the answer"] * len(WANTED)


def test_who_reads_slowly_gets_it_all_and_who_has_nothing_to_read_is_left_alone(impatient):
    """A piece now and then: too little for the kernel to take more from the transport in time."""
    with (
        impatient.connected(receive_buffer_bytes=1 << 16) as slow,
        impatient.connected() as idle,
        impatient.connected() as asleep,
    ):
        assert idle.is_open()
        asleep.send(head("GET", "/probe/large/1"))  # the client's machine has it, if not the client
        slow.send(WANTED["parts"] + head("GET", "/probe/unread/203"))
        ends = time.monotonic() + 3 * TIMEOUT_SECONDS
        while time.monotonic() < ends:
            slow.read_some(1 << 17)
            time.sleep(TIMEOUT_SECONDS / 8)
        assert digest(slow.answer().body) == digest(bytes(range(256)) * 256 * 400)
        assert slow.answer().status == 203
        assert idle.is_open()
        assert len(asleep.answer().body) == 1 << 16
        assert asleep.is_open()


def test_over_a_unix_domain_socket_of_a_service_of_its_own(tmp_path):
    path = tmp_path / "socket"
    body = packed({"logits": np.zeros((100, 50_000), np.float32)}, {})
    with running("--uds", path, "--write-timeout-seconds", TIMEOUT_SECONDS) as service:
        with socket.socket(socket.AF_UNIX) as mute:
            mute.connect(str(path))
            mute.sendall(post("/v1/softmax", body, f"content-type: {SAFETENSORS}", f"accept: {SAFETENSORS}"))
            until(lambda: f"\n{CUT} 1.0\n" in httpx.get(f"{service.admin}/metrics").text)
        service.signal()
        assert service.end() == 0
