"""POST /v1/softmax: reference numbers through HTTP."""

import math

import numpy as np
import pytest
from wire import SAFETENSORS, post, post_tensors, unpacked

from logitd.settings import Settings
from logitd_kernels.gumbel import Noise, gumbel_noise

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


# ---- Sparse maps and noise ----


@pytest.mark.parametrize(
    ("kind", "values"),
    [("sparsemax", [0, 0.25, 0.75]), ("entmax15", [0, 0.32600736, 0.67399264])],
)
def test_sparse_maps(service_url, kind, values):
    body = {"logits": [[-2, 0, 0.5], [None, 7, None]], "kind": kind}
    rows = post(service_url, "/v1/softmax", body).json()["rows"]
    assert rows[0]["values"] == pytest.approx(values, abs=1e-8)
    assert rows[0]["entropy"] == pytest.approx(-sum(p * math.log(p) for p in values if p), abs=1e-8)
    assert rows[1]["values"] == [0, 1, 0]
    assert [row["log_z"] for row in rows] == [None, None]
    assert set(rows[0]) == {"values", "log_z", "entropy", "error"}
    warm = post(service_url, "/v1/softmax", {"logits": [[-4, 0, 1]], "kind": kind, "temperature": 2}).json()["rows"]
    assert warm[0]["values"] == pytest.approx(values, abs=1e-8)


def noisy(row, noise, temperature):
    masses = np.exp((np.array(row) + gumbel_noise(noise, len(row))) / temperature)
    return masses / masses.sum()


def test_gumbel_softmax_replays(service_url):
    row, asked = [0.0, 1.0, 2.0, 0.5], {"kind": "gumbel_softmax", "temperature": 0.7}
    told = post(service_url, "/v1/softmax", {"logits": [row] * 3, **asked}).json()["rows"]
    assert len({one["seed"] for one in told}) == 3
    assert all(one["seed"] < 2**53 and (one["stream"], one["step"]) == (0, 0) for one in told)
    for one in told:
        assert one["values"] == pytest.approx(noisy(row, Noise(one["seed"]), 0.7), rel=1e-12)
        again = post(service_url, "/v1/softmax", {"logits": [row], **asked, "seed": one["seed"]}).json()["rows"]
        assert again == [one]


def test_noise_for_all_rows_or_for_each(service_url):
    asked = {"logits": [[0.0, 1, None]] * 2, "kind": "gumbel_softmax"}
    keys = {"seed": [5, "18446744073709551615"], "stream": [1, 2], "step": 4}
    told = post(service_url, "/v1/softmax", {**asked, **keys}).json()["rows"]
    assert [(one["seed"], one["stream"], one["step"]) for one in told] == [(5, 1, 4), (2**64 - 1, 2, 4)]
    assert told[1]["values"] == pytest.approx([*noisy([0.0, 1, -np.inf], Noise(2**64 - 1, 2, 4), 1)])
    same = post(service_url, "/v1/softmax", {**asked, "seed": 1}).json()["rows"]
    assert same[0] == same[1]
    drawn = post(service_url, "/v1/softmax", {**asked, "seed": [1, None]}).json()["rows"]
    assert drawn[0] == same[0]
    assert drawn[1]["seed"] is not None


def test_a_bad_row_of_every_kind_fails_alone(service_url):
    logits = np.array([[0, 1, 2], [0, np.nan, 0], [2, 1, 0]], np.float32)
    for kind in ("sparsemax", "entmax15", "gumbel_softmax"):
        tensors, rest = unpacked(
            post_tensors(service_url, "/v1/softmax", {"logits": logits}, {"kind": kind}, accept=SAFETENSORS)
        )
        assert tensors["status"].tolist() == [0, 1, 0]
        assert np.isnan(tensors["values"][1]).all()
        assert tensors["values"][[0, 2]].sum(1) == pytest.approx([1, 1])
        assert [row["error"] and row["error"]["code"] for row in rest["rows"]] == [None, "non_finite", None]
        if kind == "gumbel_softmax":
            assert tensors["seed"].dtype == np.uint64
            assert tensors["seed"].tolist() == [row["seed"] for row in rest["rows"]]
        else:
            assert np.isnan(tensors["log_z"]).all()
            assert "seed" not in tensors


def test_a_request_of_bad_rows_alone_is_refused(service_url):
    response = post(service_url, "/v1/softmax", {"logits": [[None, None]], "kind": "entmax15"})
    assert (response.status_code, response.json()["errors"][0]["path"]) == (422, "logits[0]")


@pytest.mark.parametrize("kind", ["softmax", "logsumexp", "sparsemax", "gumbel_softmax"])
def test_a_large_request_is_computed_in_parts(serve, kind):
    logits = np.random.default_rng(1).normal(size=(50, 40))
    logits[33, 3] = np.nan
    request = {"kind": kind, "temperature": [0.5 + row / 10 for row in range(50)]}
    request |= {"seed": list(range(50))} if kind == "gumbel_softmax" else {}
    answers = []
    for rows in (7, 256):
        with serve(Settings(batch_rows=rows)) as url:
            told = post_tensors(url, "/v1/softmax", {"logits": logits}, request).json()
            answers.append(told["rows"])
    assert answers[0] == answers[1]
    assert answers[0][33]["error"]["row"] == 33


def test_no_rows(service_url):
    for kind in ("softmax", "logsumexp", "entmax15", "gumbel_softmax"):
        assert post(service_url, "/v1/softmax", {"logits": [], "kind": kind}).json()["rows"] == []


GUMBEL = {"kind": "gumbel_softmax"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"kind": "softmin"}, "kind"),
        ({"kind": None}, "kind"),
        ({"kind": ["softmax"]}, "kind"),
        ({"temperature": [1, 0]}, "temperature[1]"),
        ({"temperature": [1, "1"]}, "temperature[1]"),
        ({"temperature": [1]}, "temperature"),
        ({"temperature": {}}, "temperature"),
        ({"kind": "sparsemax", "temperature": 0}, "temperature"),
        ({"seed": 1}, "seed"),
        ({"seed": None}, "seed"),
        ({"kind": "entmax15", "stream": 0}, "stream"),
        ({"kind": "sparsemax", "step": 0}, "step"),
        ({**GUMBEL, "seed": -2}, "seed"),
        ({**GUMBEL, "seed": 2**64}, "seed"),
        ({**GUMBEL, "seed": 1.5}, "seed"),
        ({**GUMBEL, "seed": True}, "seed"),
        ({**GUMBEL, "seed": {}}, "seed"),
        ({**GUMBEL, "seed": "x"}, "seed"),
        ({**GUMBEL, "seed": [1]}, "seed"),
        ({**GUMBEL, "seed": [1, "y"]}, "seed[1]"),
        ({**GUMBEL, "seed": [[1], [2]]}, "seed[0]"),
        ({**GUMBEL, "stream": -1}, "stream"),
        ({**GUMBEL, "stream": 2**32}, "stream"),
        ({**GUMBEL, "stream": None}, "stream"),
        ({**GUMBEL, "step": [0, 0.5]}, "step[1]"),
        ({**GUMBEL, "step": [0, 1, 2]}, "step"),
        ({**GUMBEL, "noise": 1}, "noise"),
        ({"head": {"ids": [[0]], "logits": [[0]], "log_z": [0], "vocab_size": 2}}, "head.vocab_size"),
        ({"mask": [[1], [1]]}, "mask"),
    ],
    ids=str,
)
def test_faults_are_named(service_url, fields, path):
    response = post(service_url, "/v1/softmax", {"logits": [[1, 2], [3, 4]], **fields})
    assert (response.status_code, response.json()["errors"][0]["path"]) == (422, path)


@pytest.mark.parametrize(
    ("body", "path"),
    [({}, "logits"), ({"logits": None}, "logits"), ({"logits": [[]]}, "logits"), ({"logits": [0]}, "logits[0]")],
)
def test_logits_are_required(service_url, body, path):
    response = post(service_url, "/v1/softmax", body)
    assert (response.status_code, response.json()["errors"][0]["path"]) == (422, path)
