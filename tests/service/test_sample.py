"""POST /v1/sample: what a caller is promised, over real HTTP."""

import math

import numpy as np
import pytest
from wire import head_of, post, post_tensors, sampled, unpacked

ROW_FIELDS = {
    "token", "logprob", "entropy", "entropy_kept", "kept", "kept_mass", "seed", "stream", "step", "exact", "error",
}  # fmt: skip


def test_a_row_reports_what_it_was_drawn_from(service_url):
    [row] = sampled(service_url, [[math.log(p) for p in (0.1, 0.2, 0.3, 0.4)]], {"top_p": 0.65, "seed": 3})
    assert set(row) == ROW_FIELDS
    assert row["kept"] == 2
    assert row["kept_mass"] == pytest.approx(0.7)
    assert row["entropy"] == pytest.approx(1.2798542258)
    assert row["entropy_kept"] == pytest.approx(-(3 / 7 * math.log(3 / 7) + 4 / 7 * math.log(4 / 7)))
    assert row["logprob"] == pytest.approx(math.log({2: 3 / 7, 3: 4 / 7}[row["token"]]))
    assert row["error"] is None
    assert row["exact"] is True


@pytest.mark.parametrize("params", [{"temperature": 0}, {"top_k": 1}, {"temperature": 0, "top_p": 0.5}])
def test_greedy_takes_the_lowest_id_of_the_largest(service_url, params):
    rows = sampled(service_url, [[1, 5, 5, 5], [-1, -1, -1, -2]], {**params, "seed": 11})
    assert [row["token"] for row in rows] == [1, 0]
    assert [row["kept"] for row in rows] == [1, 1]
    assert [row["logprob"] for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 2}, 2),
        ({"top_k": 2, "ties": "all"}, 5),
        ({"top_k": 50}, 6),
        ({"top_k": 0}, 6),
        ({"top_k": -1}, 6),
        ({"top_p": 1e-12}, 1),
        ({"top_p": 1}, 6),
        ({"min_p": 1}, 1),
        ({"min_p": 0.05}, 5),
        ({"banned_ids": [0]}, 5),
        ({"allowed_ids": [2, 5]}, 2),
        ({"logit_bias": {"5": "-inf", "0": -100}}, 5),
    ],
)
def test_kept_count(service_url, params, kept):
    [row] = sampled(service_url, [[4, 2, 2, 2, 2, 0]], {**params, "seed": 1})
    assert row["kept"] == kept


def test_top_p_keeps_the_crossing_token(service_url):
    probs = [[0.4, 0.3, 0.2, 0.1]]
    logits = [[math.log(p) for p in row] for row in probs]
    assert [sampled(service_url, logits, {"top_p": p})[0]["kept"] for p in (0.39, 0.41, 0.69, 0.71, 0.91)] == [
        1,
        2,
        2,
        3,
        4,
    ]


def test_mask_limits_the_draw(service_url):
    mask = [[0b1010], [-1]]
    rows = sampled(service_url, [[9, 1, 9, 1], [9, 1, 9, 1]], {"temperature": 0}, mask=mask)
    assert [row["token"] for row in rows] == [1, 0]


@pytest.mark.parametrize("logits", [[[7.5]], [[-3]]])
def test_vocabulary_of_one(service_url, logits):
    [row] = sampled(service_url, logits, {"top_p": 0.5, "top_k": 3})
    assert (row["token"], row["logprob"], row["entropy"], row["kept"]) == (0, 0, 0, 1)


def test_zero_rows(service_url):
    assert sampled(service_url, []) == []
    tensors, rest = unpacked(
        post_tensors(
            service_url, "/v1/sample", {"logits": np.zeros((0, 5), np.float32)}, accept="application/vnd.safetensors"
        )
    )
    assert tensors["token"].shape == (0,)
    assert rest["rows"] == []


def test_each_row_has_its_own_parameters(service_url):
    params = [{"temperature": 0}, {"temperature": 2.0, "seed": 5}, {"top_k": 2, "seed": "18446744073709551615"}]
    response = post(service_url, "/v1/sample", {"logits": [[1, 2, 3]] * 3, "params": params}).json()
    assert [row["kept"] for row in response["rows"]] == [1, 3, 2]
    assert [row["seed"] for row in response["rows"]][1:] == [5, 2**64 - 1]
    assert [effective["temperature"] for effective in response["effective"]] == [0, 2, 1]
    assert response["effective"][2]["top_k"] == 2
    assert response["effective"][0]["top_p"] == 1


def test_a_row_without_a_seed_can_be_replayed(service_url):
    logits = [[0.0] * 1000] * 3
    first = sampled(service_url, logits)
    assert len({row["seed"] for row in first}) == 3
    assert all(row["seed"] < 2**53 for row in first)
    again = sampled(service_url, logits, [{"seed": row["seed"]} for row in first])
    assert [row["token"] for row in again] == [row["token"] for row in first]


def test_several_draws_from_one_row(service_url):
    [row] = sampled(service_url, [[0.0, 1.0, 2.0]], {"n": 5, "seed": 2})
    assert len(row["tokens"]) == len(row["tokens_logprob"]) == 5
    assert row["token"] == row["tokens"][0]
    [alone] = sampled(service_url, [[0.0, 1.0, 2.0]], {"seed": 2})
    assert alone["token"] == row["tokens"][0]


def test_top_logprobs_are_raw_or_processed(service_url):
    [raw] = sampled(service_url, [[1, 2, 3]], {"temperature": 2, "seed": 1}, logprobs=2)
    assert [top["token"] for top in raw["top"]] == [2, 1]
    assert [top["logprob"] for top in raw["top"]] == pytest.approx([-0.407605964444, -1.40760596444])
    [processed] = sampled(
        service_url, [[1, 2, 3]], {"temperature": 2, "seed": 1}, logprobs=2, logprobs_mode="processed"
    )
    assert [top["logprob"] for top in processed["top"]] == pytest.approx([-0.68027, -1.18027], abs=1e-5)
    assert raw["logprob_raw"] <= 0


def test_trace_names_each_active_step(service_url):
    [row] = sampled(service_url, [[4, 3, 2, 1]], {"top_k": 3, "top_p": 0.7, "seed": 1}, trace=True)
    assert [(step["transform"], step["kept"]) for step in row["trace"]] == [
        ("temperature", 4),
        ("top_k", 3),
        ("top_p", 2),
    ]


def bad_batch():
    logits = np.random.default_rng(1).normal(size=(64, 50)).astype(np.float32)
    logits[3, 7] = np.nan
    logits[20, 0] = np.inf
    logits[63] = -np.inf
    return logits


@pytest.mark.parametrize("transport", ["json", "safetensors"])
def test_bad_rows_fail_alone(service_url, transport):
    logits = bad_batch()
    if transport == "json":
        rows = sampled(service_url, logits.tolist(), {"seed": 1})
    else:
        rows = post_tensors(service_url, "/v1/sample", {"logits": logits}, {"params": {"seed": 1}}).json()["rows"]
    errors = {place: row["error"]["code"] for place, row in enumerate(rows) if row["error"]}
    assert errors == {3: "non_finite", 20: "non_finite", 63: "all_masked"}
    assert [place for place, row in enumerate(rows) if row["token"] is None] == [3, 20, 63]
    assert "logit 7 is NaN" in rows[3]["error"]["detail"]
    assert rows[20]["error"]["row"] == 20
    good = np.delete(logits, [3, 20, 63], axis=0)
    alone = sampled(service_url, good.tolist(), {"seed": 1})
    assert [row["token"] for row in rows if row["error"] is None] == [row["token"] for row in alone]


def test_bad_rows_in_a_binary_answer(service_url):
    response = post_tensors(service_url, "/v1/sample", {"logits": bad_batch()}, accept="application/vnd.safetensors")
    tensors, rest = unpacked(response)
    assert np.flatnonzero(tensors["status"]).tolist() == [3, 20, 63]
    assert (tensors["token"][[3, 20, 63]] == -1).all()
    assert np.isnan(tensors["logprob"][[3, 20, 63]]).all()
    assert rest["rows"][63]["error"]["code"] == "all_masked"
    assert rest["rows"][0]["error"] is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"logits": [[float("nan"), 1], [None, None]]}, 422),
        ({"logits": [[1, 2], [float("inf"), 1]], "strict": True}, 422),
        ({"logits": [[1, 2], [float("inf"), 1]]}, 200),
    ],
)
def test_all_bad_or_strict_is_refused(service_url, body, status):
    response = post(service_url, "/v1/sample", body)
    assert response.status_code == status
    if status == 422:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["errors"][-1]["path"] == "logits[1]"


def test_a_row_emptied_by_its_edits_is_all_masked(service_url):
    rows = sampled(service_url, [[1, 2], [1, 2]], [{"banned_ids": [0, 1]}, {"allowed_ids": [1]}])
    assert rows[0]["error"]["code"] == "all_masked"
    assert rows[1]["token"] == 1


def test_the_head_form_in_json(service_url):
    logits = np.random.default_rng(5).normal(size=(1, 300)) * 4
    head = head_of(logits, 200, (1.0, 0.7))
    names = {"head_ids": "ids", "head_logits": "logits", "head_finite_count": "finite_count"}
    sent = {names.get(name, name): array.tolist() for name, array in head.items()}
    params = {"temperature": 0.7, "top_p": 0.9, "seed": 4}
    response = post(service_url, "/v1/sample", {"head": {**sent, "vocab_size": 300}, "params": params})
    [row] = response.json()["rows"]
    [dense] = sampled(service_url, logits.tolist(), params)
    assert row["exact"] is True
    assert (row["token"], row["kept"]) == (dense["token"], dense["kept"])
    assert row["logprob"] == pytest.approx(dense["logprob"], abs=1e-5)


def test_a_tail_that_matters_is_caught(service_url):
    # 10 tokens of a flat vocabulary of 1000: nearly all the mass is in the tail.
    head = head_of(np.zeros((1, 1000)), 10)
    response = post_tensors(service_url, "/v1/sample", head, {"vocab_size": 1000, "params": {"seed": 1, "top_p": 0.9}})
    assert response.status_code == 422  # every row is bad
    assert "head_too_short" in response.text
    guess = {"vocab_size": 1000, "params": {"seed": 1, "top_p": 0.9, "allow_inexact": True}}
    [row] = post_tensors(service_url, "/v1/sample", head, guess).json()["rows"]
    assert row["exact"] is False
    assert row["token"] in range(10)
