"""What `/metrics` says after requests whose outcome is known."""

import math
import re
import socket

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from running import until
from wire import SAFETENSORS, head_of, packed, post, post_tensors, sampled

from logitd.counting.series import REJECTED, SESSION_EVENT
from logitd.settings import Settings

SESSIONS = "/v1/attention/sessions"


def scraped(url):
    """Every sample by name and labels, the labels sorted by name."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}


def by_label(seen, name):
    """The samples of a series with one label, by its value."""
    return {key[1][1]: value for key, value in seen.items() if key[0] == name and len(key) == 2}


def test_what_happened_is_counted(serve):
    with serve(Settings()) as url:
        sampled(url, [[1, 2], [float("nan"), 1], [None, None], [float("inf"), 0]], {"seed": 1, "n": 3})
        post(url, "/v1/softmax", {"logits": [[1]]})
        post(url, "/v1/sample", {"logits": 1})
        httpx.get(f"{url}/nowhere")
        seen = scraped(url)
    assert seen["logitd_requests_total", ("code", "200"), ("endpoint", "/v1/sample")] == 1
    assert seen["logitd_requests_total", ("code", "422"), ("endpoint", "/v1/sample")] == 1
    assert seen["logitd_requests_total", ("code", "404"), ("endpoint", "unmatched")] == 1
    assert seen["logitd_request_duration_seconds_count", ("endpoint", "/v1/softmax")] == 1
    assert by_label(seen, "logitd_rows_total") == {"ok": 1, "nan": 1, "all_neginf": 1, "posinf": 1, "head_too_short": 0}
    assert sum(by_label(seen, "logitd_tokens_sampled_total").values()) == 3
    stages = by_label(seen, "logitd_stage_duration_seconds_count")
    assert (stages["read"], stages["decode"], stages["compute"], stages["encode"], stages["write"]) == (3, 3, 2, 2, 3)
    assert by_label(seen, "logitd_requests_rejected_total")["invalid"] == 1
    assert seen["logitd_inflight_requests",] == 1  # the scrape itself
    memory = by_label(seen, "logitd_device_memory_bytes")
    assert 0 < memory["used"] < memory["total"]


def test_the_distribution_of_a_row_is_counted(serve):
    logits = np.log([[0.5, 0.25, 0.125, 0.125]])
    with serve(Settings()) as url:
        post(url, "/v1/sample", {"logits": logits.tolist(), "params": {"seed": 1, "top_k": 2}})
        seen = scraped(url)
    entropies = by_label(seen, "logitd_entropy_nats_sum")
    before, after = 1.75 * math.log(2), -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    assert entropies == pytest.approx({"after_temperature": before, "after_truncation": after}, abs=1e-6)
    supports = by_label(seen, "logitd_effective_support_tokens_sum")
    assert supports == pytest.approx({"after_temperature": math.exp(before), "after_truncation": 2}, abs=1e-5)
    assert seen["logitd_truncated_mass_ratio_sum",] == pytest.approx(0.25, abs=1e-6)
    assert by_label(seen, "logitd_tokens_sampled_total")["top_k"] == 1
    two = ("logitd_effective_support_tokens_bucket", ("le", "2.0"), ("when", "after_truncation"))
    assert seen[two] == 1


@pytest.mark.parametrize(
    ("params", "method"),
    [
        ({"temperature": 0, "top_k": 2}, "greedy"),
        ({"temperature": 0.7}, "untruncated"),
        ({"top_p": 0.5}, "top_p"),
        ({"min_p": 0.1}, "min_p"),
        ({"top_p": 0.5, "top_k": 3}, "combined"),
    ],
)
def test_tokens_are_counted_by_what_truncated_them(serve, params, method):
    with serve(Settings()) as url:
        sampled(url, [[1, 2, 3, 4]] * 2, params)
        found = by_label(scraped(url), "logitd_tokens_sampled_total")
    assert {name: count for name, count in found.items() if count} == {method: 2}


def test_batches_are_counted_by_operation_and_release(serve):
    head = head_of(np.array([[3.0, 2, 1, 0, -1]]), 3)
    with serve(Settings()) as url:
        sampled(url, [[1, 2]])  # light
        sampled(url, [[1, 2]], {"n": 2})  # queues
        assert post_tensors(url, "/v1/sample", head, {"vocab_size": 5}).status_code == 200
        post(url, "/v1/softmax", {"logits": [[1], [2]]})
        seen = scraped(url)
    released = {(key[1][1], key[2][1]): n for key, n in seen.items() if key[0] == "logitd_batches_total" and n}
    assert released == {
        ("sample", "inline"): 1,
        ("sample", "idle"): 1,
        ("sample_head", "inline"): 1,
        ("softmax", "idle"): 1,
    }
    rows = {op: n for op, n in by_label(seen, "logitd_batch_rows_sum").items() if n}
    assert rows == {"sample": 2, "sample_head": 1, "softmax": 2}
    assert seen["logitd_batch_fill_ratio_count",] == 2


def test_bodies_and_answers_are_measured(serve):
    body = packed({"logits": np.zeros((1, 1000), np.float32)}, {"params": {"seed": 1}})
    with serve(Settings()) as url:
        answer = post(url, "/v1/sample", body, SAFETENSORS)
        httpx.get(f"{url}/v1/info")  # no tensors
        seen = scraped(url)
    assert seen["logitd_request_body_bytes_sum",] == len(body)
    assert seen["logitd_response_body_bytes_sum",] == len(answer.content)
    spent = sum(by_label(seen, "logitd_stage_duration_seconds_sum").values())
    assert 0 < spent <= seen["logitd_request_duration_seconds_sum", ("endpoint", "/v1/sample")]


def test_who_leaves_before_the_answer_has_none_to_measure(serve):
    gone = ("logitd_requests_total", ("code", "499"), ("endpoint", "/v1/sample"))
    with serve(Settings()) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        until(lambda: scraped(url).get(gone) == 1)
        seen = scraped(url)
    assert by_label(seen, "logitd_cancelled_total")["reading"] == 1
    assert by_label(seen, "logitd_stage_duration_seconds_count")["write"] == 0
    assert seen["logitd_response_body_bytes_count",] == 0


@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        (b"GET /v1/info HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", "431", "invalid"),
        (b"no HTTP at all\r\n\r\n", "400", "invalid"),
        (b"GET /v1/info HTTP/1.1\r\nho", "408", "slow_body"),
    ],
)
def test_what_is_refused_before_it_is_a_request_is_counted(serve, sent, code, reason):
    with serve(Settings(header_timeout_seconds=0.2)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(sent)
            assert client.recv(100).split()[1] == code.encode()
        seen = scraped(url)
    assert seen["logitd_requests_total", ("code", code), ("endpoint", "unmatched")] == 1
    assert by_label(seen, "logitd_requests_rejected_total")[reason] == 1


def test_each_refusal_has_its_reason(serve):
    with serve(Settings(max_body_bytes=4096, api_keys="one:secret")) as url:
        key = {"x-api-key": "secret"}
        post(url, "/v1/sample", {"logits": [[1]]})
        post(url, "/v1/sample", b"{", **key)
        post(url, "/v1/sample", b" " * 5000, **key)
        post(url, "/v1/sample", {"logits": [[1]]}, **key, **{"x-request-timeout-ms": "0"})
        name = post(url, SESSIONS, {"heads": 1, "dim": 4}, **key).json()["id"]
        httpx.delete(f"{url}{SESSIONS}/{name}", headers=key)
        httpx.delete(f"{url}{SESSIONS}/{name}", headers=key)
        metrics = httpx.get(f"{url}/metrics", headers=key).text
    found = dict(re.findall(r'^logitd_requests_rejected_total{reason="(\w+)"} (\S+)$', metrics, re.MULTILINE))
    assert set(found) == set(REJECTED.labels["reason"])
    told = {reason: float(count) for reason, count in found.items() if float(count)}
    assert told == {"auth": 1, "invalid": 1, "body_too_large": 1, "deadline": 1, "session": 1}


def test_what_becomes_of_sessions(serve):
    with serve(Settings()) as url:
        first = post(url, SESSIONS, {"heads": 1, "dim": 4}).json()["id"]
        state = httpx.get(f"{url}{SESSIONS}/{first}/export").content
        assert post(url, f"{SESSIONS}/import", state, SAFETENSORS).status_code == 201
        httpx.get(f"{url}{SESSIONS}/{first}")
        httpx.delete(f"{url}{SESSIONS}/{first}")
        httpx.get(f"{url}{SESSIONS}/{first}")
        seen = scraped(url)
    events = by_label(seen, "logitd_session_events_total")
    assert set(events) == set(SESSION_EVENT.labels["event"])
    assert events == {"create": 1, "import": 1, "export": 1, "hit": 2, "miss": 1, "expire": 0, "delete": 1}
    assert seen["logitd_sessions",] == 1


def test_attention_is_counted_by_what_was_chosen(serve):
    q = np.random.default_rng(0).normal(size=(1, 2, 80, 8)).astype(np.float32)
    with serve(Settings(attention_threshold=100)) as url:
        for mode in ("auto", "exact", "moment"):
            asked = {"mode": mode, "policy": "best_effort"}
            assert post_tensors(url, "/v1/attention", {"q": q, "k": q, "v": q}, asked).status_code == 200
        seen = scraped(url)
    found = {tuple(v for _, v in key[1:]): n for key, n in seen.items() if key[0] == "logitd_attention_requests_total"}
    assert {labels: count for labels, count in found.items() if count} == {
        ("exact", "threshold"): 1,
        ("exact", "forced"): 1,
        ("linear", "forced"): 1,
    }
    assert by_label(seen, "logitd_attention_sequence_length_sum") == {"exact": 160, "linear": 80, "mixed": 0}
    assert by_label(seen, "logitd_attention_approx_relative_error_count") == {"exact": 4, "moment": 2}


def test_refused_uses_of_shared_memory_are_counted(serve):
    register = "/v2/systemsharedmemory/region/a/register"
    with serve(Settings(shared_memory=True)) as url:
        post(url, register, {"key": "logitd_test_that_nobody_made", "byte_size": 4})
        post(url, register, {"key": "x", "byte_size": 0})
        output = {"name": "TOKEN", "parameters": {"shared_memory_region": "a", "shared_memory_byte_size": 8}}
        logits = {"name": "LOGITS", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
        answer = post(url, "/v2/models/sample/infer", {"inputs": [logits], "outputs": [output]})
        assert "shared memory region: 'a'" in answer.json()["error"]
        seen = scraped(url)
    assert by_label(seen, "logitd_shm_errors_total") == {"not_found": 2, "malformed": 1, "disabled": 0, "too_large": 0}
    assert seen["logitd_shm_regions",] == 0
