"""What a request says beside logits and numbers: the sequence so far, guidance, a padded vocabulary, an order."""

import numpy as np
import pytest
from wire import head_of, post, post_tensors, sampled, unpacked

from logitd import Client
from logitd.settings import Settings

ROW = [[3.0, 2.0, 1.0, 0.0]]
GREEDY = {"temperature": 0}


def refused(response, path, *words):
    assert response.status_code == 422, response.text
    [fault] = response.json()["errors"]
    assert fault["path"] == path
    assert all(word in fault["message"] for word in words), fault


def test_penalties_look_at_the_sequence(service_url):
    [row] = sampled(service_url, ROW, {**GREEDY, "repetition_penalty": 4}, prompt_ids=[[0, -1]], output_ids=[[1]])
    assert row["token"] == 2
    [row] = sampled(service_url, ROW, {**GREEDY, "presence_penalty": 4}, prompt_ids=[[0, 1]], output_ids=[[0]])
    assert row["token"] == 1


@pytest.mark.parametrize(
    ("params", "token"),
    [
        ({"no_repeat_ngram_size": 2}, 1),
        ({"bad_words": [[1, 2, 0]]}, 1),
        ({"min_tokens": 4, "stop_ids": [0]}, 1),
        ({"dry_multiplier": 5, "dry_allowed_length": 1}, 1),
        ({"min_tokens": 3, "stop_ids": [0]}, 0),
    ],
)
def test_edits_that_look_at_the_sequence(service_url, params, token):
    [row] = sampled(
        service_url, ROW, {**GREEDY, **params}, output_ids=[[2, 0, 2]] if "bad_words" not in params else [[1, 2]]
    )
    assert row["token"] == token


def test_binary_and_json_say_the_same(service_url):
    ids = {"prompt_ids": np.array([[0, 1, -1]], np.int32), "output_ids": np.array([[1, 2]], np.int64)}
    tensors = {"logits": np.array(ROW, np.float32), **ids, "guidance_logits": np.array([[0, 2.0, 1, 0]], np.float32)}
    params = {"seed": 3, "frequency_penalty": 0.5, "repetition_penalty": 1.2, "guidance_scale": 1.5}
    answer, rest = unpacked(
        post_tensors(service_url, "/v1/sample", tensors, {"params": params}, accept="application/vnd.safetensors")
    )
    nested = {name: tensor.tolist() for name, tensor in tensors.items() if name != "logits"}
    [row] = sampled(service_url, ROW, params, **nested)
    assert (answer["token"][0], answer["kept"][0]) == (row["token"], row["kept"])
    assert answer["entropy"][0] == np.float32(row["entropy"])
    assert rest["effective"]["guidance_scale"] == 1.5


def test_a_head_form_has_a_sequence_too(service_url):
    head = {**head_of(np.array(ROW), 3), "output_ids": np.array([[0]])}
    response = post_tensors(
        service_url, "/v1/sample", head, {"vocab_size": 4, "params": {**GREEDY, "presence_penalty": 2}}
    )
    assert response.json()["rows"][0]["token"] == 1


def test_a_padded_vocabulary_is_cut(service_url):
    padded, mask = [[0.0, 1.0, 50.0, 50.0]], [[0b1111]]
    for fields in ({"vocab_size": 2}, {"vocab_size": 2, "mask": mask}):
        [row] = sampled(service_url, padded, {"seed": 1}, **fields)
        assert (row["token"] < 2, row["kept"]) == (True, 2)
    refused(
        post(service_url, "/v1/sample", {"logits": padded, "vocab_size": 2, "params": {"banned_ids": [2]}}),
        "params.banned_ids",
    )
    refused(post(service_url, "/v1/sample", {"logits": padded, "vocab_size": 5}), "vocab_size", "at most the 4", "5")
    wide, words = [[0.0] * 33], [[-1]]
    [row] = sampled(service_url, wide, {"seed": 1}, vocab_size=32, mask=words)
    assert row["kept"] == 32


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"prompt_ids": [[4]]}, "prompt_ids[0][0]"),
        ({"output_ids": [[0, -2]]}, "output_ids[0][1]"),
        ({"prompt_ids": [[0], [1]]}, "prompt_ids"),
        ({"prompt_ids": [0]}, "prompt_ids[0]"),
        ({"prompt_ids": [[0.5]]}, "prompt_ids[0][0]"),
        ({"prompt_ids": "x"}, "prompt_ids"),
        ({"guidance_logits": [[0, 1]]}, "guidance_logits"),
        ({"guidance_logits": [["x"]]}, "guidance_logits[0][0]"),
        ({"dialect": "gpt"}, "dialect"),
        ({"dialect": None}, "dialect"),
        ({"order": "top_k"}, "order"),
        ({"order": [1]}, "order[0]"),
        ({"order": ["top_q"]}, "order[0]"),
        ({"order": ["top_k", "top_k"]}, "order[1]"),
        ({"order": ["top_k", "logit_bias"]}, "order"),
        ({"order": ["adaptive_p", "top_k"]}, "order"),
        ({"params": {"bad_words": [[]]}}, "params.bad_words[0]"),
        ({"params": {"bad_words": [[9]]}}, "params.bad_words[0]"),
        ({"params": {"stop_ids": [9], "min_tokens": 1}}, "params.stop_ids"),
        ({"params": {"dry_breaker_ids": [9], "dry_multiplier": 1}}, "params.dry_breaker_ids"),
        ({"params": {"penalty_exempt_ids": [9], "repetition_penalty": 2}}, "params.penalty_exempt_ids"),
    ],
)
def test_what_cannot_be_is_refused_by_its_path(service_url, fields, path):
    refused(post(service_url, "/v1/sample", {"logits": ROW, **fields}), path)


def test_a_head_form_cannot_be_guided(service_url):
    head = {"ids": [[0]], "logits": [[3.0]], "log_z": [3.5], "vocab_size": 4}
    refused(post(service_url, "/v1/sample", {"head": head, "guidance_logits": ROW}), "guidance_logits")


def test_histories_and_words_are_limited(serve):
    with serve(Settings(max_history_ids=3, max_edits=3)) as url:
        refused(post(url, "/v1/sample", {"logits": ROW, "prompt_ids": [[0, 0, 0, 0]]}), "prompt_ids", "at most 3")
        words = {"bad_words": [[1, 2], [3]]}
        assert post(url, "/v1/sample", {"logits": ROW, "params": words}).status_code == 200
        refused(post(url, "/v1/sample", {"logits": ROW * 2, "params": words}), "params", "at most 3")


def test_a_bad_guide_fails_its_row_alone(service_url):
    body = {
        "logits": ROW * 2,
        "guidance_logits": [["-inf"] * 4, [0, 0, 0, 0]],
        "params": {"guidance_scale": 2, "seed": 1},
    }
    first, second = post(service_url, "/v1/sample", body).json()["rows"]
    assert first["error"] == {"code": "all_masked", "row": 0, "detail": "every guidance logit is -inf"}
    assert second["error"] is None


def test_orders_differ(service_url):
    params = {"temperature": 2, "top_p": 0.9, "seed": 1}
    logits = [[3.0, 1.0, 0.0]]
    kept = {name: sampled(service_url, logits, params, dialect=name)[0]["kept"] for name in ("vllm", "hf", "llama.cpp")}
    assert kept == {"vllm": 3, "hf": 3, "llama.cpp": 2}
    assert sampled(service_url, logits, params, order=["top_p", "temperature"])[0]["kept"] == 2


def test_a_trace_tells_steps_and_says_what_decided(service_url):
    [row] = sampled(service_url, ROW, {"temperature": 1.5, "top_k": 2, "banned_ids": [3], "seed": 1}, trace=True)
    assert [step["transform"] for step in row["trace"]] == ["banned_ids", "temperature", "top_k"]
    assert [step["kept"] for step in row["trace"]] == [3, 3, 2]
    assert all(step["seconds"] >= 0 and 0 < step["max_probability"] <= 1 for step in row["trace"])
    assert "top_k 2 decided what could be drawn" in row["notes"][1]
    [row] = sampled(service_url, ROW, {"temperature": 1.5, "top_k": 1, "seed": 1}, trace=True)
    assert row["notes"][0].startswith("temperature 1.5 had no effect")


def test_state_goes_out_and_comes_back(service_url):
    [row] = sampled(service_url, ROW, {"mirostat": 2, "seed": 1})
    assert set(row["state"]) == {"mirostat_mu"}
    [later] = sampled(service_url, ROW, {"mirostat": 2, "seed": 1, "step": 1, **row["state"]})
    assert later["state"] != row["state"]
    with Client(service_url) as client:
        assert client.sample(np.array(ROW), adaptive_target=0.3, seed=1).rows[0].state.keys() == {
            "adaptive_sum",
            "adaptive_weight",
        }
    assert "state" not in sampled(service_url, ROW, {"seed": 1})[0]
