"""Every malformed request is a 4xx problem that names the field; the process lives on."""

import json
import struct

import httpx
import numpy as np
import pytest
from wire import SAFETENSORS, head_of, packed, post, post_tensors

ROW = [[1.0, 2.0, 3.0]]
NAN, INF = float("nan"), float("inf")


def refused(response, status, path=None):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["error"] == problem["detail"]
    assert {"type", "title"} <= set(problem)
    if path is not None:
        assert path in [fault["path"] for fault in problem["errors"]], problem


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "logits"),
        ({"logits": None}, "logits"),
        ({"logits": 5}, "logits"),
        ({"logits": "x"}, "logits"),
        ({"logits": {}}, "logits"),
        ({"logits": [1, 2]}, "logits[0]"),
        ({"logits": [[]]}, "logits"),
        ({"logits": [[[1]]]}, "logits[0][0]"),
        ({"logits": [[1, 2], [1]]}, "logits[1]"),
        ({"logits": [[1, "x"]]}, "logits[0][1]"),
        ({"logits": [[True, 1]]}, "logits[0][0]"),
        ({"logits": [[1, {}]]}, "logits[0][1]"),
        ({"logits": ROW, "extra": 1}, "extra"),
        ({"logits": ROW, "params": {"min_q": 1}}, "params.min_q"),
        ({"logits": ROW, "params": [{}, {}]}, "params"),
        ({"logits": ROW, "params": [1]}, "params[0]"),
        ({"logits": ROW, "params": None}, "params"),
        ({"logits": ROW, "params": [{"top_p": 2}]}, "params[0].top_p"),
        ({"logits": ROW, "logprobs": -1}, "logprobs"),
        ({"logits": ROW, "logprobs": 10**6}, "logprobs"),
        ({"logits": ROW, "logprobs": 1.5}, "logprobs"),
        ({"logits": ROW, "logprobs_mode": "both"}, "logprobs_mode"),
        ({"logits": ROW, "strict": 1}, "strict"),
        ({"logits": ROW, "dialect": "ours"}, "dialect"),
        ({"logits": ROW, "vocab_size": 4}, "vocab_size"),
        ({"logits": ROW, "params": {"n": 10**9}}, "params.n"),
        ({"logits": ROW, "params": {"banned_ids": [3]}}, "params.banned_ids"),
        ({"logits": ROW * 2, "params": [{}, {"allowed_ids": [99]}]}, "params[1].allowed_ids"),
        ({"logits": ROW, "params": {"logit_bias": {"3": 1}}}, "params.logit_bias"),
        ({"logits": ROW, "params": {"banned_ids": [-1]}}, "params.banned_ids[0]"),
        ({"logits": ROW, "mask": [[1, 1]]}, "mask"),
        ({"logits": ROW, "mask": [[2**40]]}, "mask"),
        ({"logits": ROW, "mask": [[0.5]]}, "mask[0][0]"),
    ],
)
def test_json_fields(service_url, body, path):
    refused(post(service_url, "/v1/sample", body), 422, path)


BAD_VALUES = {
    "temperature": [-1, NAN, INF, "1", None, True, [1]],
    "top_p": [0, -0.1, 1.01, NAN, INF, "x", None],
    "min_p": [-0.1, 1.1, NAN, INF],
    "top_k": [-2, 1.5, NAN, INF, True, "5", None],
    "ties": ["both", 1, None],
    "seed": [-2, 2**64, 1.5, NAN, "0x1", "-5", "1" * 30, True, "½"],
    "stream": [-1, 2**32, 0.5, NAN],
    "step": [-1, 2**32, None],
    "n": [0, -1, 1.5, NAN],
    "logit_bias": [
        5,
        [1],
        {"x": 1},
        {"01": 1},
        {"-1": 1},
        {"1": "high"},
        {"1": NAN},
        {"1": INF},
        {"1": True},
        {"1": 1e301},
    ],
    "banned_ids": [5, "1", [1.5], [True], {"1": 1}],
    "allowed_ids": [5, [None]],
    "allow_inexact": [1, "true", None],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD_VALUES.items() for value in values])
def test_parameter_values(service_url, name, value):
    response = post(service_url, "/v1/sample", {"logits": ROW, "params": {name: value}})
    assert response.status_code == 422
    assert response.json()["errors"][0]["path"].startswith(f"params.{name}")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"nul", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"logits": [[1, 1' + b"0" * 400 + b"]]}", "application/json", 400),
        (b'{"logits": [[1, 2]]}', "text/plain", 415),
        (b'{"logits": [[1, 2]]}', "application/octet-stream", 415),
        (b'{"logits": [[1, 2]]}', "multipart/form-data; boundary=x", 415),
        (b"[" * 1_000_000, "application/json", 400),
        (b'{"logits":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "application/json", 400),
        (b'{"NaN":' + b"[" * 1_000_000, "application/json", 400),
        (b'{"logits": ' + b'{"a":' * 500_000, "application/json", 400),
        (b"", SAFETENSORS, 400),
        (b"1234567", SAFETENSORS, 400),
        (struct.pack("<Q", 1 << 60), SAFETENSORS, 400),
        (struct.pack("<Q", (1 << 64) - 1) + b"{}", SAFETENSORS, 400),
        (struct.pack("<Q", 2) + b"{}", SAFETENSORS, 422),
        (struct.pack("<Q", 2) + b"[]", SAFETENSORS, 400),
        (struct.pack("<Q", 4) + b"\xff\xff\xff\xff", SAFETENSORS, 400),
        (b"", "application/x-npy", 400),
        (b"\x93NUMPY\x01\x00", "application/x-npy", 400),
        (b"PK\x03\x04junk", "application/x-npy", 400),
    ],
)
def test_bodies(service_url, body, content_type, status):
    refused(post(service_url, "/v1/sample", body, content_type), status)


def test_a_body_without_a_content_type(service_url):
    request = httpx.Request("POST", f"{service_url}/v1/sample", content=b"{}")
    with httpx.Client() as client:
        refused(client.send(request), 415, "content-type")


def test_a_body_in_an_unknown_compression(service_url):
    refused(post(service_url, "/v1/sample", b"{}", **{"content-encoding": "br"}), 415, "content-encoding")


def with_header(header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_metadata_that_is_not_unicode(service_url):
    body = with_header(rb'{"__metadata__":{"request":"\ud800"}}', b"")
    refused(post(service_url, "/v1/sample", body, SAFETENSORS), 400, "__metadata__.request")


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (packed({"logits": np.ones((4, 100), np.float32)})[:-10], "logits"),
        (packed({"logits": np.ones((4, 100), np.float32)}) + b"x", "body"),
        (with_header({"logits": tensor([1, 2], 0, 8), "mask": tensor([1, 1], 4, 8, "I32")}), "mask"),
        (with_header({"logits": tensor([1, 1], 4, 8)}), "logits"),
        (with_header({"logits": tensor([1, 2], 0, 800)}), "logits"),
        (with_header({"logits": tensor([1, 2], 8, 0)}), "logits"),
        (with_header({"logits": tensor([1, 3], 0, 8)}), "logits"),
        (with_header({"logits": tensor([-1, -2], 0, 8)}), "logits"),
        (with_header({"logits": tensor([2**40, 2**40], 0, 8)}), "logits"),
        (with_header({"logits": tensor([1, 2], 0, 8, "F8")}), "logits"),
        (with_header({"logits": tensor([1, 2], 0.0, 8)}), "logits"),
        (with_header({"logits": tensor([True, 2], 0, 8)}), "logits"),
        (with_header({"logits": {"dtype": "F32"}}), "logits"),
        (with_header({"logits": 5}), "logits"),
        (with_header({"logits": tensor([1, 2], 0, 8), "__metadata__": {"request": 5}}), "__metadata__"),
        (with_header(b'{"logits": {}, "logits": {}}'), "body"),
        (with_header(b"[" * 100_000), "body"),
    ],
)
def test_safetensors_faults(service_url, body, path):
    refused(post(service_url, "/v1/sample", body, SAFETENSORS), 400, path)


@pytest.mark.parametrize(
    ("tensors", "request_", "path"),
    [
        ({"logits": np.ones((2, 3), np.int32)}, {}, "logits"),
        ({"logits": np.ones(3, np.float32)}, {}, "logits"),
        ({"logits": np.ones((1, 2, 3), np.float32)}, {}, "logits"),
        ({"logits": np.ones((2, 0), np.float32)}, {}, "logits"),
        ({"logits": np.ones((1, 2), np.float32), "junk": np.ones(1)}, {}, "junk"),
        ({"logits": np.ones((1, 2), np.float32), "mask": np.ones((1, 1), np.int64)}, {}, "mask"),
        ({"logits": np.ones((1, 2), np.float32), "mask": np.ones((2, 1), np.int32)}, {}, "mask"),
        ({"logits": np.ones((1, 2), np.float32)}, {"logits": [[1]]}, "request.logits"),
        ({"logits": np.ones((1, 2), np.float32)}, {"vocab_size": 3}, "vocab_size"),
        ({"logits": np.ones((5000, 2), np.float32)}, {}, "logits"),
        ({"head_ids": np.ones((1, 1), np.int64)}, {"vocab_size": 5}, "head_logits"),
        (head_of(np.ones((1, 5)), 2), {}, "vocab_size"),
        (head_of(np.ones((1, 5)), 2), {"vocab_size": 1}, "vocab_size"),
        (head_of(np.ones((1, 5)), 2), {"vocab_size": 10**9}, "vocab_size"),
        (head_of(np.ones((1, 5)), 2), {"vocab_size": "5"}, "vocab_size"),
        ({**head_of(np.ones((1, 5)), 2), "head_ids": np.array([[0, 0]])}, {"vocab_size": 5}, "head_ids[0]"),
        ({**head_of(np.ones((1, 5)), 2), "head_ids": np.array([[0, 9]])}, {"vocab_size": 5}, "head_ids[0][1]"),
        ({**head_of(np.ones((1, 5)), 2), "head_ids": np.array([[1, 0]])}, {"vocab_size": 5}, "head_logits[0][1]"),
        (
            {**head_of(np.ones((1, 5)), 2), "head_logits": np.array([[0.0, 1.0]])},
            {"vocab_size": 5},
            "head_logits[0][1]",
        ),
        ({**head_of(np.ones((1, 5)), 2), "log_z": np.array([[0.0]])}, {"vocab_size": 5}, "log_z[0]"),
        ({**head_of(np.ones((1, 5)), 2), "log_z": np.array([[99.0]])}, {"vocab_size": 5}, "log_z[0]"),
        ({**head_of(np.ones((1, 5)), 2), "log_z": np.array([[NAN]])}, {"vocab_size": 5}, "log_z[0]"),
        ({**head_of(np.ones((1, 5)), 2), "log_z": np.ones((2, 1))}, {"vocab_size": 5}, "log_z"),
        (
            {**head_of(np.ones((1, 5)), 2), "log_z_temperatures": np.array([0.0])},
            {"vocab_size": 5},
            "log_z_temperatures[0]",
        ),
        (
            {**head_of(np.ones((1, 5)), 2), "head_finite_count": np.array([9])},
            {"vocab_size": 5},
            "head_finite_count[0]",
        ),
    ],
)
def test_tensor_faults(service_url, tensors, request_, path):
    refused(post_tensors(service_url, "/v1/sample", tensors, request_), 422, path)


def test_paths_of_a_json_head_follow_the_json(service_url):
    head = {"ids": [[0, 0]], "logits": [[2, 1]], "log_z": [3], "vocab_size": 9}
    refused(post(service_url, "/v1/sample", {"head": head}), 422, "head.ids[0]")
    refused(post(service_url, "/v1/sample", {"head": {**head, "size": 1}}), 422, "head.size")
    refused(post(service_url, "/v1/sample", {"head": {**head, "vocab_size": 0}}), 422, "head.vocab_size")
    refused(post(service_url, "/v1/sample", {"head": {"ids": [[0]]}}), 422, "head.logits")
    refused(post(service_url, "/v1/sample", {"head": [1]}), 422, "head")
    refused(post(service_url, "/v1/sample", {"head": {**head, "ids": [[0, 1]]}, "logits": ROW}), 422, "logits")


def npy(header, data=b"\0" * 8):
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }"), 400),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1, 1), }"), 422),
        (npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1, 1), }"), 422),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -2), }"), 400),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"), 422),
        (npy("__import__('os').abort()"), 400),
        (npy("(" * 9000), 400),
    ],
)
def test_npy_faults(service_url, body, status):
    refused(post(service_url, "/v1/sample", body, "application/x-npy"), status)


def test_query_parameters_are_checked(service_url):
    body = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }")
    for query, path in [
        ("top_p=2", "top_p"),
        ("min_q=1", "min_q"),
        ("seed=1&seed=2", "seed"),
        ("temperature=x", "temperature"),
    ]:
        refused(post(service_url, f"/v1/sample?{query}", body, "application/x-npy"), 422, path)
    refused(post(service_url, "/v1/sample?seed=1", {"logits": ROW}), 422, "seed")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/sample", 405), ("GET", "/v1/none", 404), ("PUT", "/", 405), ("GET", "/v1/sample/", 404)],
)
def test_routes(service_url, method, path, status):
    refused(httpx.request(method, f"{service_url}{path}"), status)


def test_a_surrogate_in_a_name_is_repeated_escaped(service_url):
    body = rb'{"logits": [[1, NaN]], "\ud800": 1}'
    refused(post(service_url, "/v1/sample", body), 422)


def test_no_refusal_repeats_the_tensor(service_url):
    secret = 123456.75
    response = post(
        service_url, "/v1/sample", {"logits": [[secret] * 1000], "params": {"top_p": 7}, "extra": [[secret] * 1000]}
    )
    assert response.status_code == 422
    assert str(secret) not in response.text
    assert len(response.content) < 2000
