"""Clients that misbehave, many at once, against the service as a process: afterwards it is as it was before."""

import concurrent.futures
import contextlib
import gzip
import os
import random
import re
import socket
import struct
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from running import inside, running, until
from wire import SAFETENSORS, packed, post, sampled

from logitd.settings import Settings
from logitd_kernels import sample

LOGITS = np.random.default_rng(0).normal(size=(4, 30_000)).astype(np.float32)
BODY = packed({"logits": LOGITS}, {"params": {"seed": 1, "top_p": 0.9}})
EMPTY = ("logitd_admitted_requests", "logitd_inflight_bytes", "logitd_queue_requests", "logitd_queue_rows")


def metric(url, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", httpx.get(f"{url}/metrics", timeout=30).text, re.MULTILINE)
    return float(found[1]) if found else 0.0


class Books:
    """What a service holds: nothing, before and after."""

    def __init__(self, service):
        self.service = service
        self.answer = self.sampled()
        time.sleep(0.3)
        self.before = self.held()
        self.threads_before = self.threads()

    def sampled(self):
        response = post(self.service.url, "/v1/sample", BODY, SAFETENSORS)
        assert response.status_code == 200
        return [row["token"] for row in response.json()["rows"]]

    def held(self):
        files = len(os.listdir(f"/proc/{self.service.process.pid}/fd"))
        return files, metric(self.service.admin, "logitd_event_loop_tasks")

    def threads(self):
        return len(os.listdir(f"/proc/{self.service.process.pid}/task"))

    def memory(self):
        told = Path(f"/proc/{self.service.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", told)[1]) * 1024

    def balance(self):
        until(lambda: self.service.inflight() == 0)
        until(lambda: all(metric(self.service.admin, name) == 0 for name in EMPTY))
        until(lambda: self.held() == self.before)
        assert self.threads() <= self.threads_before + 8  # pools grow to their size, and no further
        assert self.sampled() == self.answer


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")


@pytest.fixture(scope="module")
def service():
    with running("--body-timeout-seconds", 2, "--max-body-bytes", 1 << 27) as service:
        yield service


@pytest.fixture
def books(service):
    books = Books(service)
    yield books
    books.balance()


def connected(service):
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def request(body, *headers):
    lines = [f"content-length: {len(body)}", f"content-type: {SAFETENSORS}", *headers]
    return ("POST /v1/sample HTTP/1.1\r\nhost: x\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode() + body


def status(connection):
    with connection.makefile("rb") as answer:
        return int(answer.readline().split()[1])


@pytest.mark.parametrize("clients", [120, pytest.param(2000, marks=pytest.mark.long)])
def test_clients_cut_at_random_offsets(books, service, clients):
    whole, pick = request(BODY), random.Random(clients)

    def cut(seed):
        with connected(service) as connection:
            connection.sendall(whole[: pick.randrange(len(whole) + 1)])
            if seed % 2:  # reset rather than end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(cut, range(clients)))
    books.balance()


def test_bodies_that_trickle_in_are_refused_in_time_and_block_nobody(books, service):
    with contextlib.ExitStack() as open_ones:
        slow = [open_ones.enter_context(connected(service)) for _ in range(60)]
        for connection in slow:
            connection.sendall(request(BODY)[:2000])
        assert books.sampled() == books.answer
        began = time.monotonic()
        while time.monotonic() - began < 1:
            for connection in slow:
                connection.sendall(b"x")
            time.sleep(0.1)
        assert {status(connection) for connection in slow} == {408}


@pytest.mark.parametrize("size", [1 << 20, pytest.param(1 << 26, marks=pytest.mark.long)])
def test_a_body_in_small_writes(service, books, size):
    """2 s are enough for 4,096 writes; a quarter of a million may be refused by then."""
    rows = np.zeros((size // 4 // 16_384, 16_384), np.float32)
    whole, before = request(packed({"logits": rows}, {"params": {"seed": 1}})), books.memory()
    with connected(service) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for start in range(0, len(whole), 256):
                connection.sendall(whole[start : start + 256])
        assert status(connection) in ((200,) if size <= 1 << 20 else (200, 408))
    assert books.memory() - before < 2 * size + (64 << 20)


def test_chunks_without_a_length(service, books):
    def chunks():
        for start in range(0, len(BODY), 1000):
            yield BODY[start : start + 1000]

    response = httpx.post(f"{service.url}/v1/sample", content=chunks(), headers={"content-type": SAFETENSORS})
    assert [row["token"] for row in response.json()["rows"]] == books.answer
    with connected(service) as connection:
        connection.sendall(b"POST /v1/sample HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(1000):
                connection.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
        assert status(connection) == 413


def test_a_bomb_is_not_unpacked(service, books):
    before = books.memory()
    bomb = gzip.compress(bytes(1 << 29), 6)
    response = post(service.url, "/v1/sample", bomb, SAFETENSORS, **{"content-encoding": "gzip"})
    assert response.status_code == 413
    assert books.memory() - before < 200 << 20


def test_a_kernel_that_raises_on_one_request_in_fifty(monkeypatch):
    def poisoned(rows, *args, **named):
        if (rows.logits[:, :1] == 1234.0).any():
            raise FloatingPointError("poison")
        return sample(rows, *args, **named)

    monkeypatch.setattr("logitd.work.sample", poisoned)
    with inside(Settings(compute_threads=2)) as (_, url, _loop):

        def ask(number):
            logits = [[1234.0 if number % 50 == 17 else 3.0, 1.0, 2.0]]
            return post(url, "/v1/sample", {"logits": logits, "params": {"seed": number}}).status_code

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            found = list(pool.map(ask, range(200)))
        assert [number for number, code in enumerate(found) if code != 200] == [17, 67, 117, 167]
        assert {found[17], found[67]} == {500}
        assert sampled(url, [[1, 2, 3]], {"seed": 1})[0]["error"] is None
        assert httpx.get(f"{url}/health/ready").status_code == 200


@pytest.mark.long
def test_ten_minutes_of_mixed_load_leave_memory_flat(service, books):
    ends, faults, sizes = time.monotonic() + 600, [], []

    def load(seed):
        pick = random.Random(seed)
        with httpx.Client(timeout=30) as client:
            while time.monotonic() < ends:
                rows = pick.randrange(1, 12)
                body = packed({"logits": LOGITS[:1].repeat(rows, 0)}, {"params": {"seed": seed}})
                if pick.random() < 0.1:
                    body = body[: pick.randrange(len(body))]
                response = client.post(f"{service.url}/v1/sample", content=body, headers={"content-type": SAFETENSORS})
                if response.status_code not in (200, 400):
                    faults.append(response.status_code)
                if pick.random() < 0.05:
                    with connected(service) as connection:
                        connection.sendall(request(BODY)[: pick.randrange(len(BODY))])

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sizes.append(books.memory())
        time.sleep(5)
    assert faults == []
    late = sizes[len(sizes) // 4 :]
    slope = np.polyfit(np.arange(len(late)), late, 1)[0] * len(late)
    assert slope < 0.05 * late[0], f"{slope / 1e6:.1f} MB more in the last 450 s"
