"""Bodies are refused by size before they are read; slow and broken ones end; nothing piles up."""

import contextlib
import os
import socket
import time

import httpx
import numpy as np
import pytest
from wire import post, post_tensors, sampled

from logitd.settings import Settings

SMALL = Settings(max_body_bytes=100_000, max_chunked_body_bytes=20_000, max_json_bytes=50_000, body_timeout_seconds=0.5)


@pytest.fixture(scope="module")
def small_url(serve):
    with serve(SMALL) as url:
        yield url


@contextlib.contextmanager
def connected(url):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        yield connection


def head(*headers):
    lines = ["POST /v1/sample HTTP/1.1", "host: x", "content-type: application/json", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer(connection):
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"}"):
        chunk = connection.recv(65536)
        if not chunk:
            break
        data += chunk
    return data


@pytest.mark.parametrize("length", [100_001, 10**12, 10**16 - 1])
def test_a_declared_length_is_refused_before_a_byte_of_it(small_url, length):
    with connected(small_url) as connection:
        connection.sendall(head(f"content-length: {length}"))
        reply = answer(connection)
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"application/problem+json" in reply
    assert b'"path":"body"' in reply


def test_expect_continue_is_not_answered_for_a_refused_body(small_url):
    with connected(small_url) as connection:
        connection.sendall(head("content-length: 999999999", "expect: 100-continue"))
        assert answer(connection).startswith(b"HTTP/1.1 413")


def test_a_chunked_body_is_refused_once_it_passes_its_limit(small_url):
    with connected(small_url) as connection:
        connection.sendall(head("transfer-encoding: chunked"))
        for _ in range(3):  # never ended: the refusal cannot have waited for all of it
            connection.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 413")


def test_many_tiny_chunks(small_url):
    with connected(small_url) as connection:
        connection.sendall(head("transfer-encoding: chunked"))
        body = b'{"logits": [[1, 2, 3]], "params": {"temperature": 0}}'
        for byte in body:
            connection.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        reply = answer(connection)
    assert reply.startswith(b"HTTP/1.1 200")
    assert b'"token":2' in reply


def test_json_that_is_declared_too_large_is_refused_before_a_byte_of_it(small_url):
    with connected(small_url) as connection:
        connection.sendall(head("content-length: 60000"))
        reply = answer(connection)
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"JSON is capped at 50000 bytes" in reply


def test_json_has_a_lower_limit(small_url):
    response = post(small_url, "/v1/sample", {"logits": [[0.0] * 15_000]})
    assert response.status_code == 413
    assert "safetensors" in response.json()["detail"]


def test_a_slow_body_times_out(small_url):
    with connected(small_url) as connection:
        connection.sendall(head("content-length: 100") + b"{")
        began = time.monotonic()
        assert answer(connection).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "99999999999999999999999", "+5"])
def test_an_unreadable_length(small_url, length):
    with connected(small_url) as connection:
        connection.sendall(head(f"content-length: {length}"))
        assert answer(connection).split(b" ")[1][:1] == b"4"


def test_a_client_that_leaves_is_counted_and_harms_nobody(small_url):
    for sent in (b"", b'{"logits"'):
        with connected(small_url) as connection:
            connection.sendall(head("content-length: 100") + sent)
    deadline = time.monotonic() + 10
    while 'logitd_requests_total{code="499",endpoint="/v1/sample"} 2.0' not in httpx.get(f"{small_url}/metrics").text:
        assert time.monotonic() < deadline, httpx.get(f"{small_url}/metrics").text
        time.sleep(0.05)
    assert sampled(small_url, [[0, 1]], {"temperature": 0})[0]["token"] == 1


def test_rows_and_vocabulary_are_bounded(serve):
    with serve(Settings(max_rows=4, max_vocab_size=10, max_n=3, max_draws=6, max_logprobs=2)) as url:
        for body, path in [
            ({"logits": [[1]] * 5}, "logits"),
            ({"logits": [[1.0] * 11]}, "logits"),
            ({"logits": [[1]], "params": {"n": 4}}, "params.n"),
            ({"logits": [[1]] * 3, "params": {"n": 3}}, "params.n"),
            ({"logits": [[1]], "logprobs": 3}, "logprobs"),
        ]:
            response = post(url, "/v1/sample", body)
            assert (response.status_code, response.json()["errors"][0]["path"]) == (422, path)
        assert len(sampled(url, [[1]] * 4)) == 4


def test_work_is_bounded_by_rows_times_what_each_asks(serve):
    with serve(Settings(max_edits=100, max_draws=50, max_json_bytes=2000)) as url:
        rows = [[0.0] * 60] * 3
        for body, path in [
            ({"logits": rows, "params": {"banned_ids": list(range(50)) * 3}}, "params"),
            ({"logits": rows, "params": {"logit_bias": {str(token): 1 for token in range(40)}}}, "params"),
            ({"logits": rows, "logprobs": 20}, "logprobs"),
        ]:
            response = post(url, "/v1/sample", body)
            assert (response.status_code, response.json()["errors"][0]["path"]) == (422, path)
        assert len(sampled(url, rows, {"banned_ids": list(range(50))})) == 3
        softmax = post(url, "/v1/softmax", {"logits": rows})
        assert (softmax.status_code, softmax.json()["errors"][0]["path"]) == (422, "accept")
        assert post(url, "/v1/softmax", {"logits": rows, "kind": "logsumexp"}).status_code == 200


def test_many_bans_on_many_rows_are_prepared_once(service_url):
    rows, vocab = 200, 100_000
    head = {
        "head_ids": np.zeros((rows, 1), np.int64),
        "head_logits": np.zeros((rows, 1), np.float32),
        "log_z": np.ones(rows),
    }
    asked = {"vocab_size": vocab, "params": {"banned_ids": list(range(1, vocab))}}
    # Minutes, and this test's timeout, when each row prepares its bans anew.
    answered = post_tensors(service_url, "/v1/sample", head, asked).json()["rows"]
    assert [row["token"] for row in answered] == [0] * rows


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_stays_flat_under_bad_and_good_requests(service_url):
    good = np.random.default_rng(0).normal(size=(8, 50_000)).astype(np.float32)

    def round_of_requests():
        post(service_url, "/v1/sample", b"[" * 1_000_000)
        post(service_url, "/v1/sample", b'{"logits":' + b"[" * 500_000)
        post_tensors(service_url, "/v1/sample", {"logits": good, "junk": good}, {})
        assert post_tensors(service_url, "/v1/sample", {"logits": good}).status_code == 200

    for _ in range(5):
        round_of_requests()
    before = resident_bytes()
    for _ in range(30):
        round_of_requests()
    assert resident_bytes() - before < 40 << 20


def test_temperatures_of_a_head_are_limited(service_url):
    def head(count):
        temperatures = [1 + place / 100 for place in range(count)]
        form = {"ids": [[0, 1]], "logits": [[1, 0]], "log_z": [[2.0] * count], "log_z_temperatures": temperatures}
        return post(service_url, "/v1/sample", {"head": {**form, "vocab_size": 2}, "params": {"seed": 1}})

    assert head(65).json()["errors"] == [{"path": "head.log_z_temperatures", "message": "at most 64, got 65"}]
    assert "at most" not in head(64).text
