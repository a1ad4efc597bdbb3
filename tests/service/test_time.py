"""A request's time, and what becomes of work that nobody waits for, on the running service."""

import concurrent.futures
import contextlib
import re
import socket
import time

import httpx
import numpy as np
import pytest
from wire import SAFETENSORS, packed, post, sampled

from logitd.settings import Settings

SMALL = {"logits": [[1, 2, 3]], "params": {"seed": 1, "n": 2}}  # off the compiled path: it queues
BLOCKING = Settings(compute_threads=1, batch_bytes=1 << 30, batch_rows=4096)
BATCHES = 'logitd_batch_rows_count{op="sample"}'


def metric(url, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def until(url, name, value):
    ends = time.monotonic() + 30
    while metric(url, name) < value:
        assert time.monotonic() < ends, f"{name} stays below {value}"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def body():
    """Rows that keep the one compute thread busy for a second or more."""
    logits = np.random.default_rng(0).normal(size=(300, 30_000)).astype(np.float32)
    return packed({"logits": logits}, {"params": {"seed": 1}, "logprobs": 20})


def long(pool, url, body):
    began = metric(url, BATCHES)
    request = pool.submit(post, url, "/v1/sample", body, SAFETENSORS)
    until(url, BATCHES, began + 1)
    return request


def test_a_deadline_is_answered_at_the_deadline_and_the_work_is_not_computed(serve, body):
    with serve(BLOCKING) as url, concurrent.futures.ThreadPoolExecutor(1) as pool:
        busy = long(pool, url, body)
        response = post(url, "/v1/sample", SMALL, **{"x-request-timeout-ms": "20"})
        assert not busy.done(), "the long request ended first"
        assert response.status_code == 504
        assert response.json()["type"] == "urn:logitd:problem:deadline"
        assert busy.result().status_code == 200
        assert metric(url, 'logitd_requests_rejected_total{reason="deadline"}') == 1
        assert metric(url, 'logitd_rows_total{kind="ok"}') == 300
        assert metric(url, BATCHES) == 1


@pytest.mark.parametrize("header", ["x-request-timeout-ms", "x-envoy-expected-rq-timeout-ms"])
@pytest.mark.parametrize("value", ["", "-1", "1e3", "1.5", "99999999999", "soon"])
def test_a_timeout_that_is_no_number_of_milliseconds_is_named(service_url, header, value):
    response = post(service_url, "/v1/sample", SMALL, **{header: value})
    assert response.status_code == 400
    assert response.json()["errors"][0]["path"] == header


def test_no_time_at_all_is_a_deadline_that_has_passed(service_url):
    assert post(service_url, "/v1/sample", SMALL, **{"x-request-timeout-ms": "0"}).status_code == 504
    assert post(service_url, "/v1/sample", SMALL, **{"x-request-timeout-ms": "60000"}).status_code == 200


def test_space_behind_a_timeout_is_not_part_of_it(service_url):
    host, port = service_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        lines = ["POST /v1/sample HTTP/1.1", "host: x", "content-type: application/json", "content-length: 25"]
        sent = '{"logits": [[1, 2, 3.0]]}'
        client.sendall("\r\n".join([*lines, "x-request-timeout-ms: 5000 \t", "", sent]).encode())
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_uploads_that_stall_turn_nobody_away(serve):
    """They are inside, but nobody waits for them."""
    with serve(Settings()) as url, contextlib.ExitStack() as held:
        host, port = url.removeprefix("http://").split(":")
        for _ in range(80):
            client = held.enter_context(socket.create_connection((host, int(port))))
            client.sendall(b"POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        until(url, "logitd_admitted_requests", 80)
        for _ in range(40):
            assert post(url, "/v1/sample", SMALL, **{"x-request-timeout-ms": "1000"}).status_code == 200


def test_a_client_that_leaves_while_queued_is_never_computed(serve, body):
    with serve(BLOCKING) as url, concurrent.futures.ThreadPoolExecutor(1) as pool:
        busy = long(pool, url, body)
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            sent = b'{"logits": [[1, 2, 3]], "params": {"n": 2}}'
            head = (
                f"POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(sent)}"
            )
            client.sendall(f"{head}\r\ncontent-type: application/json\r\n\r\n".encode() + sent)
            until(url, "logitd_queue_requests", 1)
        until(url, 'logitd_cancelled_total{stage="queued"}', 1)
        assert not busy.done(), "the long request ended first"
        assert metric(url, "logitd_queue_requests") == 0
        assert busy.result().status_code == 200
        assert metric(url, 'logitd_rows_total{kind="ok"}') == 300
        assert metric(url, 'logitd_requests_total{code="499",endpoint="/v1/sample"}') == 1


def test_a_client_that_leaves_while_computed_is_counted_as_such(serve, body):
    with serve(BLOCKING) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            lines = [
                "POST /v1/sample HTTP/1.1",
                "host: x",
                f"content-type: {SAFETENSORS}",
                f"content-length: {len(body)}",
            ]
            client.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            until(url, BATCHES, 1)
        until(url, 'logitd_cancelled_total{stage="computing"}', 1)
        assert metric(url, 'logitd_cancelled_total{stage="queued"}') == 0


def test_a_large_request_lets_small_ones_through(serve, body):
    with serve(Settings(compute_threads=1)) as url, concurrent.futures.ThreadPoolExecutor(1) as pool:
        busy = long(pool, url, body)
        for _ in range(3):
            assert sampled(url, [[1, 2, 3]], {"seed": 1, "n": 2})[0]["token"] in (0, 1, 2)
            assert sampled(url, [[1, 2, 3]], {"seed": 1})[0]["token"] in (0, 1, 2)
        assert not busy.done(), "the small ones waited for the large one"
        assert busy.result().status_code == 200


def test_who_finds_the_house_full_is_told_when_to_come_back(serve, body):
    with serve(Settings(compute_threads=1, max_inflight_requests=1)) as url:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            busy = long(pool, url, body)
            response = post(url, "/v1/sample", SMALL)
            assert not busy.done(), "the long request ended first"
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
            assert httpx.get(f"{url}/health/live").status_code == 200
            assert busy.result().status_code == 200
        assert metric(url, 'logitd_requests_rejected_total{reason="queue_full"}') == 1
        assert post(url, "/v1/sample", SMALL).status_code == 200
        assert metric(url, "logitd_admitted_requests") == 0
        assert metric(url, "logitd_inflight_bytes") == 0


@pytest.mark.parametrize("length", [1 << 10, 1 << 20])  # through the parser, and received in place
def test_a_body_that_does_not_come_is_answered_at_the_requests_own_deadline(serve, length):
    with serve(Settings()) as url, socket.create_connection(url.removeprefix("http://").split(":")) as client:
        began = time.monotonic()
        head = f"POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-type: {SAFETENSORS}\r\ncontent-length: {length}\r\n"
        client.sendall(f"{head}x-request-timeout-ms: 300\r\n\r\n".encode() + bytes(100))
        client.settimeout(10)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 504 ")
        assert time.monotonic() - began >= 0.3
        assert metric(url, 'logitd_requests_rejected_total{reason="deadline"}') == 1
