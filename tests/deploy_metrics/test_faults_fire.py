"""Faults that are put into a live service make the shipped alerts fire, and only for as long as they last."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest
from prometheus_server import address
from running import inside, running, until
from wire import SAFETENSORS, packed, post

from logitd import Client
from logitd.settings import Settings
from logitd_kernels import sample

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]


@pytest.fixture
def idle(service, watching):
    """Prometheus with nobody asking the service, and nothing firing."""
    watching.watch(address(service.admin))
    until(lambda: watching.up(1))
    until(lambda: not watching.alerts(), 60)
    return watching


def test_nan_rows_fire(idle, service):
    with Client(service.url) as client:
        result = client.sample(np.array([[1.0, np.nan], [1.0, 2.0]], np.float32))
    assert [row.error is None for row in result.rows] == [False, True]
    until(lambda: "LogitdNaNRows" in idle.alerts())
    until(lambda: "LogitdNaNRows" not in idle.alerts())


def test_entropy_collapse_fires(idle, service):
    flat, sharp = np.zeros((8, 1000), np.float32), np.zeros((8, 1000), np.float32)
    sharp[:, 0] = 20

    def send(rows, until_what):
        with Client(service.url) as client:
            ends = time.monotonic() + 90
            while not until_what():
                assert time.monotonic() < ends, f"firing: {idle.alerts()}"
                client.sample(rows)
                time.sleep(0.05)

    began = time.monotonic()
    send(flat, lambda: time.monotonic() > began + 30)  # 20 s is the hour of these rules
    assert "LogitdEntropyCollapse" not in idle.alerts()
    send(sharp, lambda: "LogitdEntropyCollapse" in idle.alerts())
    assert "nats" in idle.alerts()["LogitdEntropyCollapse"]


def test_shedding_fires(idle):
    """Forty at once where four may be: dear work, so that the four take their time."""
    body = {"logits": [[float(place % 7) for place in range(64)]], "params": {"seed": 1, "n": 512, "top_p": 0.9}}
    with running("--max-inflight-requests", 4, "--compute-threads", 1) as small:
        idle.watch(address(small.admin))
        until(lambda: idle.up(1))
        ends = threading.Event()

        def flood(_):
            codes = set()
            while not ends.is_set():
                codes.add(post(small.url, "/v1/sample", body).status_code)
            return codes

        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            asked = [pool.submit(flood, number) for number in range(40)]
            try:
                until(lambda: "LogitdShedding" in idle.alerts(), 60)
            finally:
                ends.set()
        assert set().union(*(one.result() for one in asked)) == {200, 429}
        assert "%" in idle.alerts()["LogitdShedding"]


def test_a_stalled_engine_fires_and_recovers(idle, monkeypatch):
    """The kernel hangs at one request, behind which others wait; what is light goes on, and hides nothing."""
    hangs, released = threading.Event(), threading.Event()

    def hanging(rows, *arguments, **named):
        if (rows.logits[:, 0] == 1234.0).any():
            hangs.set()
            released.wait()
        return sample(rows, *arguments, **named)

    monkeypatch.setattr("logitd.work.sample", hanging)
    light, heavy = np.zeros((1, 100), np.float32), np.zeros((8, 40_000), np.float32)
    poison = heavy.copy()
    poison[:, 0] = 1234.0
    stuck = {"LogitdEngineStalled", "LogitdOldestItemStuck"}
    with inside(Settings(compute_threads=1, request_timeout_seconds=120)) as (_, url, _loop):
        idle.watch(address(url))
        until(lambda: idle.up(1))

        def ask(logits, **request):
            return post(url, "/v1/sample", packed({"logits": logits}, request), SAFETENSORS).status_code

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask, poison, trace=True)]
            assert hangs.wait(30)
            asked += [pool.submit(ask, heavy, trace=True) for _ in range(2)]
            try:
                until(lambda: ask(light) == 200 and stuck <= set(idle.alerts()), 90)
            finally:
                released.set()
            assert [one.result() for one in asked] == [200, 200, 200]
        until(lambda: not stuck & set(idle.alerts()))


def test_a_replica_that_is_gone_fires(idle):
    with running() as short:
        idle.watch(address(short.admin))
        until(lambda: idle.up(1))
    until(lambda: "LogitdTargetDown" in idle.alerts())
