"""POST /v1/score: numbers, forms and refusals through HTTP."""

import json
import math

import numpy as np
import pytest
from wire import SAFETENSORS, post, post_tensors, unpacked

from logitd.settings import Settings

LOGITS = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, -np.inf], [3.0, 1.0, 0.0]])
TARGETS = [2, 1, 0]
LOGPROBS = [-0.407605964444, -math.log(2), -0.16984602]


def sent(logits=LOGITS, targets=TARGETS, **fields):
    rows = [[None if one == -np.inf else one for one in row] for row in np.asarray(logits).tolist()]
    return {"logits": rows, "targets": targets, **fields}


def scored(url, **fields):
    response = post(url, "/v1/score", sent(**fields))
    assert response.status_code == 200, response.text
    return response.json()


def refused(response):
    """Status and path of the first error."""
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["errors"][0]["path"]


# ---- Answers ----


def test_rows_and_losses(service_url):
    told = scored(service_url)
    assert [row["target"] for row in told["rows"]] == TARGETS
    assert [row["rank"] for row in told["rows"]] == [1, 2, 1]
    assert [row["logprob_raw"] for row in told["rows"]] == pytest.approx(LOGPROBS)
    assert [row["logprob"] for row in told["rows"]] == pytest.approx(LOGPROBS)
    assert told["rows"][0]["entropy"] == pytest.approx(0.83239558184)
    assert [row["error"] for row in told["rows"]] == [None] * 3
    mean = -sum(LOGPROBS) / 3
    assert (told["cross_entropy"], told["cross_entropy_raw"]) == pytest.approx((mean, mean))
    assert (told["perplexity"], told["perplexity_raw"]) == pytest.approx((math.exp(mean), math.exp(mean)))
    assert told["tokens"] == 3
    assert told["effective"]["temperature"] == 1
    assert set(told["seconds"]) == {"read", "decode", "queue", "compute", "encode"}
    assert "gradient" not in told["rows"][0]


def test_parameters_are_of_the_processed_log_probability_alone(service_url):
    told = scored(service_url, params={"temperature": 2.0})
    assert told["rows"][2]["logprob"] == pytest.approx(-0.464368784108)
    assert told["rows"][2]["logprob_raw"] == pytest.approx(LOGPROBS[2])
    assert told["cross_entropy_raw"] == pytest.approx(-sum(LOGPROBS) / 3)
    assert told["cross_entropy"] == pytest.approx(-sum(row["logprob"] for row in told["rows"]) / 3)


def test_what_is_truncated_away_is_null(service_url):
    told = scored(service_url, params=[{"top_k": 1}, {"banned_ids": [1]}, {"temperature": 0}])
    assert [row["logprob"] for row in told["rows"]] == [0, None, 0]
    assert [row["error"] for row in told["rows"]] == [None] * 3
    assert (told["cross_entropy"], told["perplexity"], told["tokens"]) == (None, None, 3)
    assert told["cross_entropy_raw"] == pytest.approx(-sum(LOGPROBS) / 3)


def test_a_masked_target_is_null(service_url):
    [row] = scored(service_url, logits=LOGITS[1:2], targets=[2])["rows"]
    assert (row["logprob_raw"], row["logprob"], row["rank"], row["error"]) == (None, None, 3, None)


def test_rows_that_are_left_out_are_not_counted(service_url):
    told = scored(service_url, targets=[2, -1, 0])
    assert told["rows"][1] == {**dict.fromkeys(told["rows"][1]), "target": -1}
    assert told["tokens"] == 2
    assert told["cross_entropy"] == pytest.approx(-(LOGPROBS[0] + LOGPROBS[2]) / 2)
    nothing = scored(service_url, targets=[-1, -1, -1])
    assert (nothing["tokens"], nothing["cross_entropy"], nothing["perplexity"]) == (0, None, None)


def test_a_bad_row_fails_alone(service_url):
    bad = LOGITS.copy()
    bad[1, 2] = np.nan
    response = post(service_url, "/v1/score", json.dumps({"logits": bad.tolist(), "targets": TARGETS}).encode())
    told = response.json()
    assert told["rows"][1]["error"] == {
        "code": "non_finite",
        "row": 1,
        "detail": "logit 2 is NaN; only finite values and -inf are legal",
    }
    assert told["rows"][1]["logprob"] is None
    assert told["rows"][1]["target"] == 1
    assert (told["tokens"], told["rows"][0]["rank"]) == (2, 1)
    left = scored(service_url, params=[{}, {"banned_ids": [0, 1]}, {}])
    assert left["rows"][1]["error"]["code"] == "all_masked"


def test_a_bad_row_that_is_left_out_is_no_error(service_url):
    bad = LOGITS.copy()
    bad[1] = -np.inf
    assert scored(service_url, logits=bad, targets=[0, -1, 0])["rows"][1]["error"] is None


def test_a_request_of_bad_rows_alone_is_refused(service_url):
    logits = [[None, None], [0, 1], [None, None]]
    response = post(service_url, "/v1/score", {"logits": logits, "targets": [0, -1, 1]})
    assert refused(response) == (422, "logits[0]")
    assert [error["path"] for error in response.json()["errors"]] == ["logits[0]", "logits[2]"]


def test_the_gradient_is_that_of_finite_differences(service_url):
    step = 1e-5
    told = scored(service_url, gradient=True)
    for row, token in [(0, 0), (0, 2), (1, 0), (1, 1), (2, 1)]:
        moved = np.stack([LOGITS[row]] * 2)
        moved[0, token] += step
        moved[1, token] -= step
        up, down = (one["logprob_raw"] for one in scored(service_url, logits=moved, targets=[TARGETS[row]] * 2)["rows"])
        assert told["rows"][row]["gradient"][token] == pytest.approx((down - up) / (2 * step), abs=1e-8)
    assert told["rows"][1]["gradient"][2] == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_binary_answer(service_url, dtype, ids):
    logits = np.vstack([LOGITS, [[np.nan, 0, 0], [np.nan, 0, 0]]]).astype(dtype)
    tensors = {"logits": logits, "targets": np.array([*TARGETS, 0, -1], ids)}
    request = {"gradient": True, "params": {"top_k": 1}}
    columns, rest = unpacked(post_tensors(service_url, "/v1/score", tensors, request, accept=SAFETENSORS))
    assert columns["target"].tolist() == [*TARGETS, 0, -1]
    assert columns["status"].tolist() == [0, 0, 0, 1, 0]
    assert columns["logprob_raw"].tolist() == pytest.approx([*LOGPROBS, np.nan, np.nan], nan_ok=True)
    assert columns["logprob"].tolist() == pytest.approx([0, -np.inf, 0, np.nan, np.nan], nan_ok=True)
    assert columns["rank"].tolist() == [1, 2, 1, -1, -1]
    assert columns["gradient"].dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert np.isnan(columns["gradient"][3]).all()
    assert (columns["gradient"][4] == 0).all()
    assert columns["gradient"][0] == pytest.approx([0.0900305731704, 0.244728471055, -0.334759044225], abs=1e-6)
    assert [row["error"] and row["error"]["code"] for row in rest["rows"]] == [None, None, None, "non_finite", None]
    assert (rest["tokens"], rest["cross_entropy"]) == (3, None)
    assert rest["cross_entropy_raw"] == pytest.approx(-sum(LOGPROBS) / 3)


def test_a_large_request_is_computed_in_parts(serve):
    rng = np.random.default_rng(1)
    logits, targets = rng.normal(size=(50, 40)), rng.integers(0, 40, 50)
    logits[33, 3] = np.nan
    params = [{"temperature": 0.5 + row / 10, "top_k": 20} for row in range(50)]
    answers = []
    for rows in (7, 256):
        with serve(Settings(batch_rows=rows)) as url:
            request = {"params": params, "gradient": True}
            response = post_tensors(url, "/v1/score", {"logits": logits, "targets": targets}, request)
            answers.append({name: value for name, value in response.json().items() if name != "seconds"})
            wrong = [*params[:41], {"banned_ids": [40]}, *params[42:]]
            response = post_tensors(url, "/v1/score", {"logits": logits, "targets": targets}, {"params": wrong})
            assert refused(response) == (422, "params[41].banned_ids")
    assert answers[0] == answers[1]
    assert answers[0]["rows"][33]["error"]["row"] == 33


def test_a_row_is_scored_as_it_would_be_drawn(service_url):
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(20, 300)).astype(np.float32)
    params = {"temperature": 0.8, "top_p": 0.7, "seed": 5}
    drawn = post_tensors(service_url, "/v1/sample", {"logits": logits}, {"params": params}).json()["rows"]
    targets = np.array([row["token"] for row in drawn])
    told = post_tensors(service_url, "/v1/score", {"logits": logits, "targets": targets}, {"params": params}).json()
    expected = [row["logprob"] for row in drawn]
    assert [row["logprob"] for row in told["rows"]] == pytest.approx(expected, abs=1e-9)


def test_what_is_known_of_a_row_counts(service_url):
    logits, targets = np.zeros((1, 4)), np.array([1])
    beside = {"output_ids": np.array([[1, -1]], np.int32), "mask": np.array([[0b0111]], np.int32)}
    request = {"params": {"frequency_penalty": 1.0}}
    response = post_tensors(service_url, "/v1/score", {"logits": logits, "targets": targets, **beside}, request)
    assert response.json()["rows"][0]["logprob"] == pytest.approx(-1 - math.log(2 + math.exp(-1)))


def test_padded_rows(service_url):
    told = scored(service_url, logits=[[0.0, 0.0, 9.0]], targets=[1], vocab_size=2)
    assert told["rows"][0]["logprob_raw"] == pytest.approx(-math.log(2))
    assert refused(post(service_url, "/v1/score", sent(vocab_size=2))) == (422, "targets[0]")


# ---- What is refused ----

FAULTS = {
    "no targets": ({"logits": [[0, 1]]}, "targets"),
    "targets null": ({"logits": [[0, 1]], "targets": None}, "targets"),
    "no logits": ({"targets": [0]}, "logits"),
    "target beyond V": (sent(targets=[0, 3, 0]), "targets[1]"),
    "target -2": (sent(targets=[0, 0, -2]), "targets[2]"),
    "target huge": (sent(targets=[0, 0, 2**70]), "targets[2]"),
    "target a fraction": (sent(targets=[0, 0.5, 0]), "targets[1]"),
    "target a boolean": (sent(targets=[True, 0, 0]), "targets[0]"),
    "target a string": (sent(targets=["0", 0, 0]), "targets[0]"),
    "targets nested": (sent(targets=[[0], [0], [0]]), "targets[0]"),
    "targets a number": (sent(targets=0), "targets"),
    "targets an object": (sent(targets={}), "targets"),
    "too few targets": (sent(targets=[0, 0]), "targets"),
    "too many targets": (sent(targets=[0] * 4), "targets"),
    "no targets at all": (sent(targets=[]), "targets"),
    "logits one row deep": ({"logits": [0, 1], "targets": [0]}, "logits[0]"),
    "logits ragged": ({"logits": [[0, 1], [0]], "targets": [0, 0]}, "logits[1]"),
    "logits empty": ({"logits": [[]], "targets": [0]}, "logits"),
    "logits a string": ({"logits": "0", "targets": [0]}, "logits"),
    "gradient a number": (sent(gradient=1), "gradient"),
    "gradient null": (sent(gradient=None), "gradient"),
    "params a string": (sent(params="hot"), "params"),
    "params too few": (sent(params=[{}]), "params"),
    "params unknown": (sent(params={"temprature": 1}), "params.temprature"),
    "params out of bounds": (sent(params=[{}, {"top_p": 2}, {}]), "params[1].top_p"),
    "params beyond V": (sent(params=[{}, {}, {"banned_ids": [3]}]), "params[2].banned_ids"),
    "dialect": (sent(dialect="latin"), "dialect"),
    "order": (sent(order=["top_q"]), "order[0]"),
    "head form": (sent(head={"ids": [[0]]}), "head"),
    "unknown field": (sent(target=[0]), "target"),
    "of a sample": (sent(logprobs=1), "logprobs"),
    "vocab_size": (sent(vocab_size=0), "vocab_size"),
    "a mask of another shape": (sent(mask=[[1, 1]] * 3), "mask"),
    "prompt of another shape": (sent(prompt_ids=[[1]]), "prompt_ids"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(service_url, name):
    body, path = FAULTS[name]
    assert refused(post(service_url, "/v1/score", body)) == (422, path)


BINARY_FAULTS = {
    "float targets": ({"logits": LOGITS, "targets": np.zeros(3)}, None, "targets"),
    "byte targets": ({"logits": LOGITS, "targets": np.zeros(3, np.uint8)}, None, "targets"),
    "unsigned targets": ({"logits": LOGITS, "targets": np.zeros(3, np.uint64)}, None, "targets"),
    "targets of two dimensions": ({"logits": LOGITS, "targets": np.zeros((3, 1), np.int64)}, None, "targets"),
    "integer logits": ({"logits": np.zeros((3, 3), np.int64), "targets": np.zeros(3, np.int64)}, None, "logits"),
    "logits of three dimensions": ({"logits": np.zeros((3, 3, 1)), "targets": np.zeros(3, np.int64)}, None, "logits"),
    "another tensor": ({"logits": LOGITS, "targets": np.zeros(3, np.int64), "head_ids": LOGITS}, None, "head_ids"),
    "targets in the request": ({"logits": LOGITS}, {"targets": [0, 0, 0]}, "request.targets"),
}


@pytest.mark.parametrize("name", BINARY_FAULTS)
def test_faults_of_tensors_are_named(service_url, name):
    tensors, request, path = BINARY_FAULTS[name]
    assert refused(post_tensors(service_url, "/v1/score", tensors, request)) == (422, path)


def test_forms_that_are_not_understood(service_url):
    assert post(service_url, "/v1/score", b"", "application/x-npy").status_code == 415
    assert post(service_url, "/v1/score", b"{", "application/json").status_code == 400
    assert post(service_url, "/v1/score", b"[]", "application/json").status_code == 400


def test_no_rows(service_url):
    told = scored(service_url, logits=np.zeros((0, 0)), targets=[])
    assert (told["rows"], told["tokens"], told["cross_entropy"]) == ([], 0, None)


def test_limits(serve):
    with serve(Settings(max_rows=2, max_vocab_size=4, max_edits=5, max_json_bytes=2000)) as url:
        for body, path in [
            ({"logits": [[0]] * 3, "targets": [0] * 3}, "logits"),
            ({"logits": [[0] * 5], "targets": [0]}, "logits"),
            ({"logits": [[0] * 4], "targets": [0], "params": {"banned_ids": [1] * 6}}, "params"),
        ]:
            assert refused(post(url, "/v1/score", body)) == (422, path)
    with serve(Settings(max_json_bytes=1000)) as url:
        many = {"logits": [[0] * 30] * 3, "targets": [0] * 3}
        assert post(url, "/v1/score", many).status_code == 200
        assert refused(post(url, "/v1/score", {**many, "gradient": True})) == (422, "accept")
        tensors = {"logits": np.zeros((3, 30)), "targets": np.zeros(3, np.int64)}
        assert post_tensors(url, "/v1/score", tensors, {"gradient": True}, accept=SAFETENSORS).status_code == 200
