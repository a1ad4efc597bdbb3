"""POST /v1/softmax: reference numbers through HTTP."""

import math

import numpy as np
import pytest
from wire import post, post_tensors, unpacked

LN3 = math.log(3)
TABLE = [
    ([1, 2, 3], 1, [0.0900305731704, 0.244728471055, 0.665240955775], 3.4076059644444, 0.83239558184),
    ([1000, 1000, 999], 1, [0.422318798252, 0.422318798252, 0.155362403497], 1000.8619948041, 1.01735720756),
    ([-1000, -1001, -1002], 1, [0.665240955775, 0.244728471055, 0.0900305731704], -999.59239403556, 0.83239558184),
    ([3.4e38, 0], 1, [1, 0], 3.4e38, 0),
    ([88, -88], 1, [1, 0], 88, 0),
    ([0, None, 0], 1, [0.5, 0, 0.5], 0.69314718056, 0.69314718056),
    ([None, 5, "-inf"], 1, [0, 1, 0], 5, 0),
    ([10, 9.99], 0.01, [0.73105857863, 0.26894142137], 1000.313261687518, 0.582203108888),
    ([10, 9.99], 1e-4, [1, 0], 1e5, 0),
    ([3, 1, 0], 2, [0.628531719212, 0.231223897622, 0.140244383166], 1.9643687841, 0.905959256479),
    ([10, -10, 0], 1e30, [1 / 3, 1 / 3, 1 / 3], LN3, LN3),
    ([-3.4e38, -3.4e38], 1, [0.5, 0.5], -3.4e38, 0.69314718056),
]


@pytest.mark.parametrize(("logits", "temperature", "probs", "log_z", "entropy"), TABLE)
def test_reference_numbers(service_url, logits, temperature, probs, log_z, entropy):
    body = {"logits": [logits], "temperature": temperature}
    [row] = post(service_url, "/v1/softmax", body).json()["rows"]
    assert row["values"] == pytest.approx(probs, abs=1e-9)
    assert row["log_z"] == pytest.approx(log_z, rel=1e-9)
    assert row["entropy"] == pytest.approx(entropy, abs=1e-9)
    [sampled] = post(service_url, "/v1/sample", {"logits": [logits], "params": {"temperature": temperature}}).json()[
        "rows"
    ]
    assert sampled["entropy"] == pytest.approx(entropy, abs=1e-6)


def test_log_softmax_keeps_what_probabilities_lose(service_url):
    body = {"logits": [[10, 9.99], [88, -88]], "temperature": [1e-4, 1], "kind": "log_softmax"}
    rows = post(service_url, "/v1/softmax", body).json()["rows"]
    assert rows[0]["values"] == pytest.approx([0, -100])
    assert rows[1]["values"] == pytest.approx([0, -176])


def test_log_softmax_of_a_mask_is_null(service_url):
    [row] = post(service_url, "/v1/softmax", {"logits": [[0, None]], "kind": "log_softmax"}).json()["rows"]
    assert row["values"] == [0, None]


def test_logsumexp_leaves_the_values_out(service_url):
    [row] = post(service_url, "/v1/softmax", {"logits": [[1, 2, 3]], "kind": "logsumexp"}).json()["rows"]
    assert row["values"] is None
    assert row["log_z"] == pytest.approx(3.4076059644444)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_binary_answer(service_url, dtype):
    logits = np.array([[1, 2, 3], [np.nan, 0, 0]], dtype)
    response = post_tensors(service_url, "/v1/softmax", {"logits": logits}, accept="application/vnd.safetensors")
    tensors, rest = unpacked(response)
    assert tensors["values"].dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert tensors["values"][0] == pytest.approx([0.0900305731704, 0.244728471055, 0.665240955775], abs=1e-7)
    assert tensors["status"].tolist() == [0, 1]
    assert np.isnan(tensors["values"][1]).all()
    assert rest["rows"][1]["error"]["code"] == "non_finite"


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), float("inf"), "1", None, [1, 2], True])
def test_temperature_is_checked(service_url, temperature):
    response = post(service_url, "/v1/softmax", {"logits": [[1, 2]], "temperature": temperature})
    assert response.status_code == 422
    assert response.json()["errors"][0]["path"] == "temperature"
