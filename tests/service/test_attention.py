"""POST /v1/attention: over HTTP, against float64 softmax, and what is refused."""

import concurrent.futures
import json
import socket
import threading
import time

import httpx
import numpy as np
import pytest
from wire import SAFETENSORS, packed, post, post_tensors, unpacked

from logitd.settings import Settings

PATH = "/v1/attention"
BINARY = {"accept": SAFETENSORS}


def softmax_attention(q, k, v, seen=None, scale=None):
    """Float64, for BHLD tensors with as many KV heads as heads."""
    scores = np.einsum("bhid,bhjd->bhij", q.astype(float), k.astype(float)) * (scale or q.shape[-1] ** -0.5)
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdims=True), v.astype(float))


def tensors(length, heads=2, dim=16, batch=1, spread=1.0, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((batch, heads, length, dim)) for _ in range(3))
    return {"q": (q * spread).astype(dtype), "k": (k * spread).astype(dtype), "v": v.astype(dtype)}


def attended(url, sent, **fields):
    response = post_tensors(url, PATH, sent, fields, **BINARY)
    assert response.status_code == 200, response.text
    found, report = unpacked(response)
    return found["output"], report


def relative_error(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("length", [1, 63, 129])
def test_short_calls_are_exact(service_url, length, dtype):
    sent = tensors(length, dtype=dtype)
    output, report = attended(service_url, sent)
    assert output.dtype == dtype
    assert relative_error(output, softmax_attention(**sent)) < (1e-3 if dtype == np.float16 else 1e-6)
    for head in report["heads"][0]:
        assert (head["mode"], head["why"], head["over_tolerance"]) == ("exact", "short", False)
        assert head["relative_error"] < 1e-3
        assert 0 <= head["entropy"] <= np.log(length) + 1e-6


def test_json_and_safetensors_agree(service_url):
    sent = tensors(7)
    lists = {name: array.tolist() for name, array in sent.items()}
    response = post(service_url, PATH, {**lists, "causal": True, "mask": [[True] * 7] * 7, "lengths": [5]})
    assert response.status_code == 200, response.text
    binary, _ = attended(service_url, {**sent, "mask": np.ones((7, 7), bool), "lengths": np.array([5])}, causal=True)
    assert np.array_equal(np.array(response.json()["output"], np.float32), binary)
    assert not binary[:, :, 5:].any()


def test_layout_is_the_callers(service_url):
    sent = tensors(40, heads=3)
    output, _ = attended(service_url, sent)
    turned, _ = attended(
        service_url, {name: array.transpose(0, 2, 1, 3) for name, array in sent.items()}, layout="BLHD"
    )
    assert np.array_equal(turned.transpose(0, 2, 1, 3), output)


def test_grouped_heads_masks_windows_and_lengths(service_url):
    sent = tensors(33, heads=4, batch=2)
    sent["k"], sent["v"] = sent["k"][:, :2], sent["v"][:, :2]
    wide = {"q": sent["q"], "k": sent["k"].repeat(2, 1), "v": sent["v"].repeat(2, 1)}
    i, j = np.arange(33)[:, None], np.arange(33)[None]
    lengths = np.array([33, 20])
    seen = (j <= i) & (j > i - 5) & (j < lengths[:, None, None])
    output, report = attended(service_url, {**sent, "lengths": lengths}, causal=True, window=5)
    with np.errstate(invalid="ignore"):  # queries that see nothing
        want = softmax_attention(**wide, seen=seen[:, None])
    assert relative_error(output[0], want[0]) < 1e-6
    assert relative_error(output[1, :, :20], want[1, :, :20]) < 1e-6
    assert not output[1, :, 20:].any()
    assert report["effective"]["window"] == 5


def test_long_calls_are_linear_within_the_tolerance_or_exact(service_url):
    smooth, rough = tensors(3000, heads=1, spread=0.5), tensors(3000, heads=1, spread=2.5, seed=1)
    sent = {name: np.concatenate([smooth[name], rough[name]], 1) for name in smooth}
    output, report = attended(service_url, sent, threshold=1024, tolerance=0.1)
    want = softmax_attention(**sent)
    linear, exact = report["heads"][0]
    assert (linear["mode"], linear["why"]) == ("hybrid", "long")
    assert linear["state_bytes"] < linear["kv_bytes"]
    assert (exact["mode"], exact["why"]) == ("exact", "given_up")
    assert exact["approximate_error"] > 0.1 > 1e-5 > exact["relative_error"]
    for place, head in enumerate((linear, exact)):
        true = relative_error(output[0, place], want[0, place])
        assert true < 0.12
        assert head["relative_error"] == pytest.approx(true, rel=0.3, abs=1e-5)
    _, flagged = attended(service_url, sent, threshold=1024, tolerance=0.1, policy="best_effort")
    assert [head["over_tolerance"] for head in flagged["heads"][0]] == [False, True]


@pytest.mark.parametrize("mode", ["moment", "favor_plus", "trig", "elu", "nystrom", "mean_v", "hybrid"])
def test_every_method_says_how_wrong_it_is(service_url, mode):
    sent = tensors(600, dim=8)
    output, report = attended(service_url, sent, mode=mode, policy="best_effort", seed=3)
    again, _ = attended(service_url, sent, mode="linear", method=mode, policy="best_effort", seed=3)
    assert np.array_equal(output, again)
    want = softmax_attention(**sent)
    for place, head in enumerate(report["heads"][0]):
        assert (head["mode"], head["why"]) == (mode, "requested")
        true = relative_error(output[0, place], want[0, place])
        assert true < 0.01 or head["relative_error"] > 0.5 * true or mode == "trig"  # its error is in a few rows
        if mode == "mean_v":
            assert head["relative_error"] == pytest.approx(head["mean_v_error"], rel=1e-4)


def test_plans_say_which_heads_and_layers(service_url):
    sent = tensors(300, heads=3)
    _, report = attended(service_url, sent, heads=["exact", "moment", "hybrid"], policy="best_effort")
    assert [head["mode"] for head in report["heads"][0]] == ["exact", "moment", "hybrid"]
    for layer, mode in ((0, "exact"), (1, "moment")):
        _, report = attended(service_url, sent, mode="moment", layer=layer, exact_layers=[0], policy="best_effort")
        assert {head["mode"] for head in report["heads"][0]} == {mode}


def test_values_that_are_not_finite_are_named(service_url):
    for name in ("q", "k", "v"):
        sent = tensors(5)
        sent[name][0, 1, 3, 2] = np.nan
        response = post_tensors(service_url, PATH, sent, **BINARY)
        assert response.status_code == 422
        assert response.json()["errors"] == [
            {"path": name, "message": "NaN at [0, 1, 3, 2]; only finite values are legal"}
        ]
    sent["lengths"] = np.array([3])
    assert post_tensors(service_url, PATH, sent, **BINARY).status_code == 200  # it is padding


REFUSED = [
    ({"q": np.zeros((1, 2, 3), np.float32)}, {}, "q"),
    ({"k": np.zeros((1, 2, 3, 5), np.float32)}, {}, "k"),
    ({"v": np.zeros((1, 2, 4, 16), np.float32)}, {}, "v"),
    ({"q": np.zeros((1, 3, 3, 16), np.float32)}, {}, "q"),
    ({"q": np.zeros((1, 2, 3, 16), np.int32)}, {}, "q"),
    ({"q": np.zeros((1, 2, 3, 16), np.float64)}, {}, "k"),
    ({"mask": np.zeros((7, 7), bool)}, {}, "mask"),
    ({"mask": np.zeros((3, 3), np.int64)}, {}, "mask"),
    ({"lengths": np.array([4])}, {}, "lengths"),
    ({"lengths": np.array([1, 1])}, {}, "lengths"),
    ({"logits": np.zeros((1, 3), np.float32)}, {}, "logits"),
    ({"sink_logits": np.zeros(3, np.float32)}, {}, "sink_logits"),
    ({}, {"mode": "magic"}, "mode"),
    ({}, {"mode": "nystrom", "causal": True}, "causal"),
    ({}, {"mode": "moment", "window": 2}, "window"),
    ({}, {"heads": ["exact"]}, "heads"),
    ({}, {"tolerance": -1}, "tolerance"),
    ({}, {"tolerance": "NaN"}, "tolerance"),
    ({}, {"window": 0}, "window"),
    ({}, {"softcap": 0}, "softcap"),
    ({}, {"audit_rows": 1}, "audit_rows"),
    ({}, {"mode": "trig", "feature_dim": 1}, "feature_dim"),
    ({}, {"nonsense": 1}, "nonsense"),
]


@pytest.mark.parametrize(("changed", "fields", "path"), REFUSED)
def test_what_is_wrong_is_named(service_url, changed, fields, path):
    response = post_tensors(service_url, PATH, {**tensors(3), **changed}, fields, **BINARY)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"] == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"q": 1, "k": [], "v": []}, "q"),
        ({"q": [[[["1"]]]], "k": [[[[1]]]], "v": [[[[1]]]]}, "q[0][0][0][0]"),
        ({"q": [[[[1], [1, 2]]]], "k": [[[[1]]]], "v": [[[[1]]]]}, "q[0][0][1]"),
        ({"q": [[[[1]]]], "k": [[[[1]]]]}, "v"),
        ({"q": [[[[1]]]], "k": [[[[1]]]], "v": [[[[1]]]], "mask": [[True], [0]]}, "mask[1]"),
        ({"q": [[[[None]]]], "k": [[[[1]]]], "v": [[[[1]]]]}, "q"),
    ],
)
def test_json_is_read_strictly(service_url, body, path):
    response = post(service_url, PATH, body)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"] == path


def test_npy_is_no_form_for_three_tensors(service_url):
    response = post(service_url, PATH, b"x", "application/x-npy")
    assert response.status_code == 415
    assert "npy" not in response.json()["detail"].partition(", got")[0]


def test_empty_tensors(service_url):
    for shape in ((0, 2, 3, 4), (1, 2, 0, 4)):
        sent = dict.fromkeys(("q", "k", "v"), np.zeros(shape, np.float32))
        output, report = attended(service_url, sent)
        assert output.shape == shape
        assert len(report["heads"]) == shape[0]
    nothing = {"q": np.ones((1, 1, 2, 4), np.float32), "k": np.zeros((1, 1, 0, 4), np.float32)}
    output, _ = attended(service_url, {**nothing, "v": np.zeros((1, 1, 0, 4), np.float32)})
    assert output.tolist() == np.zeros((1, 1, 2, 4)).tolist()


def test_work_and_answers_are_limited_before_anything_is_computed(serve):
    with serve(Settings(max_attention_multiply_adds=10**6, max_body_bytes=10**5)) as url:
        response = post_tensors(url, PATH, tensors(400, heads=1, dim=8), **BINARY)
        assert response.status_code == 422
        assert "multiply-adds" in response.json()["detail"]
        sent = {"q": np.ones((1, 1, 1000, 1), np.float32), "k": np.ones((1, 1, 1, 1), np.float32)}
        response = post_tensors(url, PATH, {**sent, "v": np.ones((1, 1, 1, 999), np.float32)}, **BINARY)
        assert response.json()["errors"][0]["path"] == "v"


def test_sampling_goes_on_while_attention_computes(serve):
    with serve(Settings(attention_queue=2)) as url, concurrent.futures.ThreadPoolExecutor(4) as pool:
        body = packed(tensors(9000, heads=4, dim=64), {"mode": "exact"})
        long = [pool.submit(post, url, PATH, body, SAFETENSORS, **BINARY) for _ in range(2)]
        while "logitd_attention_inflight_requests 2" not in httpx.get(f"{url}/metrics").text:
            time.sleep(0.01)
        refused = post(url, PATH, packed(tensors(2)), SAFETENSORS, **BINARY)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:  # before a byte of the body
            head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: {SAFETENSORS}\r\ncontent-length: 9000000\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 503")
        spans = []
        while not long[0].done() and len(spans) < 20:
            began = time.perf_counter()
            assert post(url, "/v1/sample", {"logits": [[1, 2, 3]], "params": {"seed": 1}}).status_code == 200
            spans.append(time.perf_counter() - began)
        assert len(spans) >= 3, "attention ended before anything was sampled"
        assert [one.result().status_code for one in long] == [200, 200]
        assert post(url, PATH, packed(tensors(2)), SAFETENSORS, **BINARY).status_code == 200


def test_places_in_the_queue_are_given_back(serve):
    with serve(Settings(attention_queue=1)) as url:
        for body in (b"", b"nonsense", packed(tensors(2), {"mode": "magic"})):
            assert post(url, PATH, body, SAFETENSORS).status_code in (400, 422)
        assert post(url, PATH, packed(tensors(2)), SAFETENSORS).status_code == 200


def test_concurrent_calls_do_not_mix(service_url):
    lock, wrong = threading.Lock(), []

    def one(seed):
        sent = tensors(50, seed=seed)
        while True:
            response = post_tensors(service_url, PATH, sent, **BINARY)
            if response.status_code != 503:
                break
            time.sleep(0.05)
        output = unpacked(response)[0]["output"]
        if relative_error(output, softmax_attention(**sent)) > 1e-6:
            with lock:
                wrong.append(seed)

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(24)))
    assert wrong == []


def test_info_and_metrics_tell(service_url):
    attended(service_url, tensors(4))
    info = httpx.get(f"{service_url}/v1/info").json()["attention"]
    assert 512 <= info["threshold"] <= 2048
    assert {"auto", "exact", "moment", "hybrid"} <= set(info["modes"])
    text = httpx.get(f"{service_url}/metrics").text
    assert 'logitd_attention_heads_total{mode="exact",why="short"}' in text
    assert "logitd_attention_approx_relative_error_bucket" in text


def test_the_threshold_can_be_set(serve):
    with serve(Settings(attention_threshold=77)) as url:
        assert httpx.get(f"{url}/v1/info").json()["attention"]["threshold"] == 77
        _, report = attended(url, tensors(100), policy="best_effort")
        assert report["threshold"] == 77
        assert {head["mode"] for head in report["heads"][0]} == {"hybrid"}


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("sent", "fields", "path"),
    [
        ({"q": zeros(1, 3_000_000, 0, 4), "k": zeros(1, 1, 0, 4), "v": zeros(1, 1, 0, 4)}, {}, "q"),
        ({"q": zeros(3_000_000, 1, 0, 4), "k": zeros(3_000_000, 1, 0, 4), "v": zeros(3_000_000, 1, 0, 4)}, {}, "q"),
        ({"q": zeros(1, 1, 2, 6000), "k": zeros(1, 1, 2, 6000), "v": zeros(1, 1, 2, 4)}, {"mode": "moment"}, "q"),
        ({"q": zeros(1, 1, 2, 4), "k": zeros(1, 1, 0, 4), "v": zeros(1, 1, 0, 1 << 34)}, {"mode": "moment"}, "v"),
        ({"q": zeros(1, 2000, 1, 64), "k": zeros(1, 2000, 1, 64), "v": zeros(1, 2000, 1, 64)},
         {"mode": "trig", "feature_dim": 8192}, "q"),
        ({"q": zeros(1, 4000, 1, 512), "k": zeros(1, 4000, 1, 512), "v": zeros(1, 4000, 1, 1)},
         {"mode": "moment"}, "q"),
    ],
)  # fmt: skip
def test_little_that_asks_for_much_is_refused_at_once(service_url, sent, fields, path):
    began = time.perf_counter()
    response = post_tensors(service_url, PATH, sent, fields, **BINARY)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"] == path
    assert time.perf_counter() - began < 60  # it is linear: quadratic would take hours


def test_shapes_that_overflow_are_malformed(service_url):
    header = {name: {"dtype": "F32", "shape": [0, 1 << 61, 1 << 61, 4], "data_offsets": [0, 0]} for name in "qkv"}
    text = json.dumps(header).encode()
    response = post(service_url, PATH, len(text).to_bytes(8, "little") + text, SAFETENSORS)
    assert response.status_code == 400
    assert "too large" in response.json()["detail"]


def test_json_of_many_small_lists_is_read_in_time(service_url):
    began = time.perf_counter()
    response = post(service_url, PATH, b'{"q":[[[' + b"[]," * 999_999 + b'[]]]],"k":[[[[1]]]],"v":[[[[1]]]]}')
    assert response.status_code == 422
    assert time.perf_counter() - began < 30
