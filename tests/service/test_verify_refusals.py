"""What /v1/verify refuses, by the path at which the caller wrote it; and rows that fail without the others."""

import math

import numpy as np
import pytest
from wire import post, post_tensors

from logitd.settings import Settings

PATH = "/v1/verify"
ROW = [[0.0, 1, 2], [2, 1, 0]]
GOOD = {"target_logits": [ROW], "draft_ids": [[2]]}
LOGITS = {"draft_logits": [[[0, 1, 2]]]}
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"target_logits": None}, "target_logits", "is required: [rows, drafts + 1, vocab]"),
        ({"draft_ids": None}, "draft_ids", "is required: [rows, drafts]"),
        ({"target_logits": 3}, "target_logits", "expected a list, got an integer"),
        ({"target_logits": ROW}, "target_logits[0][0]", "expected a list, got a number"),
        ({"target_logits": [[[0, 1], [0]]]}, "target_logits[0][1]", "expected shape [2], got [1]"),
        ({"target_logits": [[["x", 1, 2], [0, 1, 2]]]}, "target_logits[0][0][0]", "got a string"),
        ({"target_logits": [[[], []]]}, "target_logits", "at least one logit"),
        ({"target_logits": [ROW[:1]]}, "target_logits", "expected [1, 2, vocab] beside draft_ids [1, 1]"),
        ({"target_logits": [ROW, ROW]}, "target_logits", "got [2, 2, 3]"),
        ({"draft_ids": [[3]]}, "draft_ids[0][0]", "must be -1 or a token id in [0, 3), got 3"),
        ({"draft_ids": [[-2]]}, "draft_ids[0][0]", "got -2"),
        ({"draft_ids": [[10**18]]}, "draft_ids[0][0]", "got 1000000000000000000"),
        ({"draft_ids": [[10**30]]}, "draft_ids[0][0]", "expected a 64-bit integer"),
        ({"draft_ids": [[1.0]]}, "draft_ids[0][0]", "expected a 64-bit integer, got a number"),
        ({"draft_ids": [[True]]}, "draft_ids[0][0]", "got a boolean"),
        ({"draft_ids": [1]}, "draft_ids[0]", "expected a list"),
        ({"draft_ids": []}, "draft_ids", "expected 1 rows as in target_logits, got 0"),
        ({"draft_probs": [[[1, 0]]]}, "draft_probs", "expected shape [1, 1, 3] = [rows, drafts, vocab], got [1, 1, 2]"),
        ({"draft_probs": [[[1, 0, 0]]], **LOGITS}, "draft_logits", "either draft_probs or draft_logits, not both"),
        ({"draft_lengths": [2]}, "draft_lengths[0]", "must be in [0, 1], got 2"),
        ({"draft_lengths": [-1]}, "draft_lengths[0]", "must be in [0, 1], got -1"),
        ({"draft_lengths": [1, 1]}, "draft_lengths", "expected 1 numbers, got 2"),
        ({"prompt_ids": [[3]]}, "prompt_ids[0][0]", "token id in [0, 3), got 3"),
        ({"output_ids": [[0], [1]]}, "output_ids", "expected 1 rows, got 2"),
        ({"method": "typical"}, "method", "'standard' or 'block'"),
        ({"strict": 1}, "strict", "boolean"),
        ({"dialect": "mine"}, "dialect", "'vllm'"),
        ({"order": ["top_x"]}, "order[0]", "unknown transform 'top_x'"),
        ({"order": "top_p"}, "order", "expected a list of transforms, got str"),
        ({"vocab_size": 0}, "vocab_size", "greater than or equal to 1"),
        ({"vocab_size": 4}, "vocab_size", "must be at most the 3 of target_logits, got 4"),
        ({"vocab_size": 2}, "draft_ids[0][0]", "token id in [0, 2), got 2"),
        ({"logits": [[1]]}, "logits", "Extra inputs"),
        ({"params": None}, "params", "expected an object of parameters, got NoneType"),
        ({"params": []}, "params", "one for each of 1 rows, got 0"),
        ({"params": [3]}, "params[0]", "expected an object of parameters, got int"),
        ({"params": {"top_x": 1}}, "params.top_x", "unknown parameter"),
        ({"params": [{"top_p": NAN}]}, "params[0].top_p", "must be in (0, 1], got nan"),
        ({"params": {"n": 2}}, "params.n", "must be 1: a row is verified once, got 2"),
        ({"params": [{"n": 2}]}, "params[0].n", "must be 1"),
        ({"params": {"banned_ids": [3]}}, "params.banned_ids", "token id 3 is outside the vocabulary [0, 3)"),
        ({"params": [{"logit_bias": {"9": 1}}]}, "params[0].logit_bias", "token id 9 is outside the vocabulary"),
        ({"params": {"mirostat": 2}}, "params.mirostat", "keeps a state from token to token"),
        ({"params": [{"adaptive_target": 0.5}]}, "params[0].adaptive_target", "keeps a state from token to token"),
        ({"draft_params": {}}, "draft_params", "goes with draft_logits, which are not there"),
        ({**LOGITS, "draft_params": 3}, "draft_params", "expected an object of parameters, got int"),
        ({**LOGITS, "draft_params": [{}, {}]}, "draft_params", "one for each of 1 rows, got 2"),
        ({**LOGITS, "draft_params": {"seed": 3}}, "draft_params.seed", "is of the draw"),
        ({**LOGITS, "draft_params": [{"step": 3}]}, "draft_params[0].step", "is of the draw"),
        ({**LOGITS, "draft_params": {"top_k": 0.5}}, "draft_params.top_k", "must be an integer"),
        ({**LOGITS, "draft_params": [{"banned_ids": [7]}]}, "draft_params[0].banned_ids", "token id 7 is outside"),
        ({**LOGITS, "draft_params": {"mirostat": 1}}, "draft_params.mirostat", "keeps a state from token to token"),
    ],
)
def test_a_field_is_refused_by_its_path(service_url, fields, path, words):
    sent = {name: value for name, value in {**GOOD, **fields}.items() if value is not None or name == "params"}
    response = post(service_url, PATH, sent)
    assert response.status_code == 422, response.text
    [error] = response.json()["errors"]
    assert error["path"] == path
    assert words in error["message"]


@pytest.mark.parametrize(
    ("tensors", "path", "words"),
    [
        ({"draft_ids": np.zeros((1, 1), np.uint8)}, "draft_ids", "expected one of int32, int64, got uint8"),
        ({"draft_ids": np.zeros((1, 1), np.uint64)}, "draft_ids", "got uint64"),
        ({"draft_ids": np.zeros(1, np.int32)}, "draft_ids", "expected 2 dimensions [rows, drafts], got shape [1]"),
        ({"target_logits": np.zeros((1, 2, 3), np.int32)}, "target_logits", "got int32"),
        ({"target_logits": np.zeros((2, 3), np.float32)}, "target_logits", "expected 3 dimensions"),
        ({"target_logits": np.zeros((1, 2, 3, 1), np.float32)}, "target_logits", "got shape [1, 2, 3, 1]"),
        ({"draft_probs": np.zeros((1, 1, 3), np.bool_)}, "draft_probs", "got bool"),
        ({"draft_lengths": np.zeros((1, 1), np.int32)}, "draft_lengths", "expected 1 dimensions [rows]"),
        ({"logits": np.zeros((1, 3), np.float32)}, "logits", "unexpected tensor; expected target_logits"),
    ],
)
def test_a_tensor_is_refused_by_its_name(service_url, tensors, path, words):
    good = {"target_logits": np.zeros((1, 2, 3), np.float32), "draft_ids": np.zeros((1, 1), np.int32)}
    response = post_tensors(service_url, PATH, {**good, **tensors})
    assert response.status_code == 422, response.text
    [error] = response.json()["errors"]
    assert error["path"] == path
    assert words in error["message"]


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"target_logits": [[[NAN, 1, 2], [0, 1, 2]]]}, "target_logits[0]", "non_finite: position 0: logit 0 is NaN"),
        ({"target_logits": [[[0, 1, 2], [0, INF, 2]]]}, "target_logits[0]", "non_finite: position 1: logit 1 is +inf"),
        ({"target_logits": [[[0, 1, 2], [None] * 3]]}, "target_logits[0]", "all_masked: position 1"),
        ({"params": {"banned_ids": [0, 1, 2]}}, "target_logits[0]", "all_masked: position 0"),
        ({"draft_probs": [[[0.1, 0.1, 0.1]]]}, "draft_probs[0]", "bad_draft: draft position 0: the probabilities sum"),
        ({"draft_probs": [[[-1, 1, 1]]]}, "draft_probs[0]", "the probability of token 0 is -1"),
        ({"draft_probs": [[[None, 1, 0]]]}, "draft_probs[0]", "the probability of token 0 is -inf"),
        ({"draft_probs": [[[INF, 0, 0]]]}, "draft_probs[0]", "the probability of token 0 is inf"),
    ],
)
def test_if_every_row_is_bad_the_request_is(service_url, fields, path, words):
    response = post(service_url, PATH, {**GOOD, **fields})
    assert response.status_code == 422, response.text
    [error] = response.json()["errors"]
    assert error["path"] == path
    assert words in error["message"]
    many = {**GOOD, **fields}
    rows = {name: [*value, *GOOD.get(name, [[[0, 0, 1]]])] for name, value in many.items() if name != "params"}
    if "params" in fields:
        rows["params"] = [fields["params"], {}]
    answer = post(service_url, PATH, rows).json()["rows"]
    assert [row["error"] is None for row in answer] == [False, True]
    assert (
        words.endswith(answer[0]["error"]["detail"][: len(words)]) or answer[0]["error"]["detail"] in error["message"]
    )
    strict = post(service_url, PATH, {**rows, "strict": True})
    assert strict.status_code == 422
    assert strict.json()["detail"].startswith("1 of 2 rows are bad and strict is set")


@pytest.mark.parametrize("probs", [[NAN, 1, 0], [NAN, NAN, NAN]])
def test_a_draft_row_with_nan_is_rejected_not_refused(service_url, probs):
    [row] = post(service_url, PATH, {**GOOD, "draft_probs": [[probs]]}).json()["rows"]
    assert (row["accepted"], row["tokens"][1], row["acceptance"], row["error"]) == (0, -1, [None], None)


@pytest.mark.parametrize(
    ("settings", "tensors", "request_fields", "path", "words"),
    [
        ({"max_rows": 5}, {}, {}, "target_logits", "at most 5 rows × positions, got 2 × 3"),
        ({"max_vocab_size": 3}, {}, {}, "target_logits", "at most 3 logits at a position, got 4"),
        ({"max_edits": 11}, {}, {"params": {"banned_ids": [0]}}, "params", "at most 11 edits a request, got 12"),
        ({"max_edits": 11}, {}, {"params": [{}, {"bad_words": [[0, 1]]}]}, "params", "got 12"),
        (
            {"max_history_ids": 17},
            {"output_ids": np.zeros((2, 3), np.int32)},
            {},
            "output_ids",
            "at most 17 ids × positions, got 6 × 3",
        ),
    ],
)
def test_limits_are_held_before_any_work(serve, settings, tensors, request_fields, path, words):
    good = {"target_logits": np.zeros((2, 3, 4), np.float32), "draft_ids": np.zeros((2, 2), np.int32)}
    with serve(Settings(**settings)) as url:
        response = post_tensors(url, PATH, {**good, **tensors}, request_fields)
    assert response.status_code == 422, response.text
    [error] = response.json()["errors"]
    assert error["path"] == path
    assert words in error["message"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\x93NUMPY", "application/x-npy", 415),
        (b"1", "text/plain", 415),
        (b"\0" * 8, "application/vnd.safetensors", 400),
    ],
)
def test_what_is_no_request_at_all(service_url, content, kind, status):
    assert post(service_url, PATH, content, kind).status_code == status
