"""POST /v1/analyze: worked numbers, every rule of validation, bad rows, binary answers."""

import json
import math

import httpx
import numpy as np
import pytest
from wire import SAFETENSORS, post, post_tensors, unpacked

from logitd.settings import Settings

LN2 = math.log(2)
NAMES = [
    "temperature",
    "log_z",
    "free_energy",
    "internal_energy",
    "entropy",
    "heat_capacity",
    "effective_states",
    "max_probability",
    "nucleus",
]
TABLE = [  # logits, T, log Z, S
    ([1, 2, 3], 1, 3.4076059644444, 0.83239558184),
    ([1000, 1000, 999], 1, 1000.8619948041, 1.01735720756),
    ([1e5, 1e5 - 1, 1e5 - 2], 1, 100000.40760596, 0.83239558184),
    ([0, None, 0], 1, 0.69314718056, 0.69314718056),
    ([None, 5, "-inf"], 1, 5, 0),
    ([10, 9.99], 0.01, 1000.313261687518, 0.582203108888),
    ([3, 1, 0], 2, 1.9643687841, 0.905959256479),
    ([3.4e38, 0], 1, 3.4e38, 0),
    ([-3.4e38, -3.4e38], 1, -3.4e38, LN2),
]


def analyzed(url, logits, **fields):
    response = post(url, "/v1/analyze", {"logits": logits, **fields})
    assert response.status_code == 200, response.text
    return response.json()["rows"]


@pytest.mark.parametrize(("logits", "temperature", "log_z", "entropy"), TABLE)
def test_reference_numbers(service_url, logits, temperature, log_z, entropy):
    [row] = analyzed(service_url, [logits], temperatures=[temperature])
    [point] = row["sweep"]
    assert list(point) == NAMES
    assert row["error"] is None
    assert point["temperature"] == temperature
    assert point["log_z"] == pytest.approx(log_z, rel=1e-11)
    assert point["entropy"] == pytest.approx(entropy, abs=1e-10)
    assert point["free_energy"] == pytest.approx(-temperature * log_z, rel=1e-11)
    assert point["effective_states"] == pytest.approx(math.exp(entropy), rel=1e-10)
    heat = temperature * point["entropy"]
    scale = max(abs(point["free_energy"]), abs(point["internal_energy"]), heat)
    assert abs(point["free_energy"] - point["internal_energy"] + heat) <= 1e-9 * scale


def test_two_levels_by_hand(service_url):
    [row] = analyzed(service_url, [[math.log(9), 0]], entropy=LN2 / 2, mass=0.95, temperatures=[1, 0.5])
    one, half = row["sweep"]
    assert (one["internal_energy"], one["max_probability"]) == pytest.approx((-0.9 * math.log(9), 0.9))
    assert one["heat_capacity"] == pytest.approx(0.9 * 0.1 * math.log(9) ** 2)
    assert half["max_probability"] == pytest.approx(81 / 82)
    assert (one["nucleus"], half["nucleus"]) == (2, 1)
    [again] = analyzed(service_url, [[math.log(9), 0]], temperatures=[row["temperature_for_entropy"]])
    assert again["sweep"][0]["entropy"] == pytest.approx(LN2 / 2, abs=2e-10)


def test_defaults(service_url):
    [row] = analyzed(service_url, [[1, 2, 3]])
    assert [point["temperature"] for point in row["sweep"]] == [1.0]
    assert (row["sweep"][0]["nucleus"], row["temperature_for_entropy"], row["warnings"]) == (None, None, [])


def test_a_range_holds_both_ends(service_url):
    [row] = analyzed(service_url, [[1, 2, 3]], temperatures={"from": 0.2, "to": 2, "step": 0.1})
    assert [point["temperature"] for point in row["sweep"]] == [round(0.2 + 0.1 * k, 1) for k in range(19)]
    entropies = [point["entropy"] for point in row["sweep"]]
    assert entropies == sorted(entropies)
    [row] = analyzed(service_url, [[1, 2]], temperatures={"from": 1, "to": 1.25, "step": 0.1})
    assert [point["temperature"] for point in row["sweep"]] == [1.0, 1.1, 1.2]
    [row] = analyzed(service_url, [[1, 2]], temperatures={"from": 3, "to": 3, "step": 1e-9})
    assert [point["temperature"] for point in row["sweep"]] == [3.0]


def test_what_passes_float64_is_null(service_url):
    [row] = analyzed(service_url, [[1e300, 0]], temperatures=[1e-300])
    assert row["sweep"][0]["log_z"] is None
    assert row["sweep"][0]["free_energy"] == -1e300


def test_warnings(service_url):
    params = {"temperature": 0.7, "top_k": 1}
    [row, flat] = analyzed(service_url, [[0, 30], [1, 1]], params=params, entropy=0.9)
    assert [warning["code"] for warning in row["warnings"]] == ["saturated", "entropy_out_of_reach", "knob_masked"]
    assert "temperature 0.7 had no effect" in row["warnings"][2]["detail"]
    assert row["temperature_for_entropy"] is None
    assert flat["warnings"][0]["code"] == "degenerate"


def test_a_bad_row_fails_alone(service_url):
    body = {"logits": np.array([[1, 2], [np.nan, 0], [-np.inf, -np.inf], [3, 1], [np.inf, 0]], np.float32)}
    response = post_tensors(service_url, "/v1/analyze", body, {"temperatures": [1, 2]})
    rows = response.json()["rows"]
    codes = [row["error"] and (row["error"]["code"], row["error"]["row"]) for row in rows]
    assert codes == [None, ("non_finite", 1), ("all_masked", 2), None, ("non_finite", 4)]
    assert rows[1] == {
        "sweep": None,
        "temperature_for_entropy": None,
        "warnings": [],
        "error": {"code": "non_finite", "row": 1, "detail": "logit 0 is NaN; only finite values and -inf are legal"},
    }
    assert [point["entropy"] for point in rows[3]["sweep"]] == pytest.approx([0.36533, 0.58220], abs=1e-5)


def test_every_row_bad_is_refused(service_url):
    response = post(service_url, "/v1/analyze", {"logits": [[None, None]]})
    assert response.status_code == 422
    assert response.json()["errors"][0]["path"] == "logits[0]"


def test_rows_of_a_large_request_are_taken_in_parts(serve):
    logits = np.random.default_rng(0).normal(size=(7, 300)).astype(np.float32)
    logits[5, 3] = np.nan
    asked = {"temperatures": [0.5, 1, 2], "mass": 0.5, "entropy": 2.0}
    with serve(Settings(batch_bytes=2 * 300 * 4 * 3)) as url:
        parts = post_tensors(url, "/v1/analyze", {"logits": logits}, asked).json()["rows"]
        alone = [post_tensors(url, "/v1/analyze", {"logits": logits[i : i + 1]}, asked) for i in (0, 6)]
    assert parts[5]["error"]["row"] == 5
    assert [alone[0].json()["rows"][0], alone[1].json()["rows"][0]] == [parts[0], parts[6]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_binary_answer(service_url, dtype):
    logits = np.array([[1, 2, 3], [np.nan, 0, 0]], dtype)
    asked = {"temperatures": [0.5, 1], "entropy": 0.5, "mass": 0.9}
    response = post_tensors(service_url, "/v1/analyze", {"logits": logits}, asked, accept=SAFETENSORS)
    tensors, rest = unpacked(response)
    assert set(tensors) == {"temperatures", *NAMES[1:], "temperature_for_entropy", "status"}
    assert tensors["temperatures"].tolist() == [0.5, 1]
    assert tensors["entropy"].shape == (2, 2)
    assert tensors["entropy"][0, 1] == pytest.approx(0.83239558184)
    assert np.isnan(tensors["entropy"][1]).all()
    assert np.isnan(tensors["temperature_for_entropy"][1])
    assert tensors["nucleus"].tolist() == [[2, 2], [-1, -1]]
    assert tensors["status"].tolist() == [0, 1]
    assert [row["error"] and row["error"]["code"] for row in rest["rows"]] == [None, "non_finite"]


def test_binary_answer_holds_what_was_asked_for(service_url):
    response = post_tensors(service_url, "/v1/analyze", {"logits": np.zeros((1, 3), np.float32)}, accept=SAFETENSORS)
    tensors, _ = unpacked(response)
    assert not {"nucleus", "temperature_for_entropy"} & set(tensors)


def test_npy_body_with_a_query(service_url, tmp_path):
    np.save(tmp_path / "row.npy", np.array([[1, 2, 3]], np.float32))
    url = "/v1/analyze?temperatures=[0.5,1]&mass=0.5"
    response = post(service_url, url, (tmp_path / "row.npy").read_bytes(), "application/x-npy")
    assert [point["nucleus"] for point in response.json()["rows"][0]["sweep"]] == [1, 1]


def test_no_rows(service_url):
    response = post_tensors(service_url, "/v1/analyze", {"logits": np.zeros((0, 4), np.float32)})
    assert response.json()["rows"] == []


RANGE = {"from": 0.5, "to": 2, "step": 0.5}
REFUSED = [
    ({"temperatures": 1}, "temperatures"),
    ({"temperatures": "1"}, "temperatures"),
    ({"temperatures": None}, "temperatures"),
    ({"temperatures": []}, "temperatures"),
    ({"temperatures": [1, 0]}, "temperatures[1]"),
    ({"temperatures": [-1]}, "temperatures[0]"),
    ({"temperatures": [True]}, "temperatures[0]"),
    ({"temperatures": ["1"]}, "temperatures[0]"),
    ({"temperatures": [[1]]}, "temperatures[0]"),
    ({"temperatures": [None]}, "temperatures[0]"),
    ({"temperatures": [1] * 257}, "temperatures"),
    ({"temperatures": {}}, "temperatures.from"),
    ({"temperatures": {"from": 1, "to": 2}}, "temperatures.step"),
    ({"temperatures": {**RANGE, "stop": 3}}, "temperatures.stop"),
    ({"temperatures": {**RANGE, "from": 0}}, "temperatures.from"),
    ({"temperatures": {**RANGE, "to": 0.4}}, "temperatures.to"),
    ({"temperatures": {**RANGE, "step": 0}}, "temperatures.step"),
    ({"temperatures": {**RANGE, "step": "0.1"}}, "temperatures.step"),
    ({"temperatures": {**RANGE, "step": 1e-300}}, "temperatures"),
    ({"temperatures": {"from": 1, "to": 256.5, "step": 1}}, None),
    ({"temperatures": {"from": 1, "to": 257, "step": 1}}, "temperatures"),
    ({"entropy": -1}, "entropy"),
    ({"entropy": "1"}, "entropy"),
    ({"entropy": True}, "entropy"),
    ({"entropy": [1]}, "entropy"),
    ({"mass": 0}, "mass"),
    ({"mass": 1.1}, "mass"),
    ({"mass": {}}, "mass"),
    ({"params": []}, "params"),
    ({"params": 1}, "params"),
    ({"params": {"top_p": 2}}, "params.top_p"),
    ({"params": {"min_q": 2}}, "params.min_q"),
    ({"params": {"banned_ids": [2]}}, "params.banned_ids"),
    ({"params": None, "entropy": None, "mass": None}, None),
    ({"temperature": 1}, "temperature"),
    ({"kind": "softmax"}, "kind"),
    ({"mask": [[1]]}, "mask"),
    ({"logits": None}, "logits"),
    ({"logits": []}, None),
    ({"logits": 5}, "logits"),
    ({"logits": [[]]}, "logits"),
    ({"logits": [1, 2]}, "logits[0]"),
    ({"logits": [[1], [1, 2]]}, "logits[1]"),
    ({"logits": [[[1]]]}, "logits[0][0]"),
    ({"logits": [["1"]]}, "logits[0][0]"),
]


@pytest.mark.parametrize(("fields", "path"), REFUSED, ids=[json.dumps(fields)[:60] for fields, _ in REFUSED])
def test_validation(service_url, fields, path):
    response = post(service_url, "/v1/analyze", {"logits": [[1, 2]], **fields})
    assert response.status_code == (200 if path is None else 422), response.text
    if path is not None:
        assert path in [error["path"] for error in response.json()["errors"]]
        assert len(response.content) < 3000


@pytest.mark.parametrize("fields", [{"temperatures": [10**400]}, {"entropy": 10**400}, {"mass": "NaN"}])
def test_numbers_beyond_float64_in_a_binary_request(service_url, fields):
    response = post_tensors(service_url, "/v1/analyze", {"logits": np.zeros((1, 2), np.float32)}, fields)
    assert response.status_code in (400, 422), response.text


def test_limits_are_checked_before_any_work(serve):
    with serve(Settings(max_rows=4, max_vocab_size=10, max_draws=6, max_edits=5, max_json_bytes=3000)) as url:
        cases = [
            ({"logits": [[0]] * 5}, "logits"),
            ({"logits": [[0] * 11]}, "logits"),
            ({"logits": [[0]] * 3, "temperatures": [1, 2, 3]}, "temperatures"),
            ({"logits": [[0, 1]] * 3, "params": {"banned_ids": [0, 1]}}, "params"),
        ]
        for body, path in cases:
            response = post(url, "/v1/analyze", body)
            assert response.status_code == 422, body
            assert response.json()["errors"][0]["path"] == path
        assert post(url, "/v1/analyze", {"logits": [[0, 1]] * 3, "temperatures": [1, 2]}).status_code == 200
    with serve(Settings(max_json_bytes=600)) as url:
        body = {"logits": [[0, 1]], "temperatures": [1, 2]}
        response = post(url, "/v1/analyze", body)
        assert (response.status_code, response.json()["errors"][0]["path"]) == (422, "accept")
        assert post(url, "/v1/analyze", body, accept=SAFETENSORS).status_code == 200


def test_batches_are_counted(serve):
    with serve(Settings()) as url:
        analyzed(url, [[1, 2], [3, 4]])
        text = httpx.get(f"{url}/metrics").text
    assert 'logitd_batch_rows_count{op="analyze"} 1.0' in text
    assert 'logitd_batch_rows_sum{op="analyze"} 2.0' in text


def test_openapi_describes_every_field(service_url):
    route = httpx.get(f"{service_url}/openapi.json").json()["paths"]["/v1/analyze"]["post"]
    body = route["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"logits", "temperatures", "entropy", "mass", "params"}
    assert all(field["description"] for field in body["properties"].values())
    row = route["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["rows"]["items"]
    point = row["properties"]["sweep"]["anyOf"][0]["items"]
    assert list(point["properties"]) == NAMES
    for described in (row, point, row["properties"]["warnings"]["items"]):
        assert all(field["description"] for field in described["properties"].values())
