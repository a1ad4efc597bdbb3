"""POST /v1/verify field by field: what is empty, padded, echoed, counted and described."""

import httpx
import numpy as np
import pytest
from wire import SAFETENSORS, post, post_tensors

from logitd.settings import Settings

PATH = "/v1/verify"
P, Q = [0.7, 0.2, 0.1], [0.1, 0.6, 0.3]
LOG_P = np.log(P).tolist()


def body(**fields):
    return {"target_logits": [[LOG_P, LOG_P]], "draft_ids": [[1]], "params": {"seed": 1}, **fields}


def one(url, **fields):
    """Verify one row over JSON."""
    response = post(url, PATH, body(**fields))
    assert response.status_code == 200, response.text
    return response.json()["rows"][0]


@pytest.mark.parametrize("form", ["json", "safetensors"])
def test_no_rows_and_no_drafts(service_url, form):
    for rows, drafts in ((0, 0), (0, 2), (2, 0)):
        tensors = {"target_logits": np.zeros((rows, drafts + 1, 3)), "draft_ids": np.zeros((rows, drafts), np.int64)}
        tensors["draft_probs"] = np.zeros((rows, drafts, 3))
        if form == "json":
            response = post(service_url, PATH, {name: tensor.tolist() for name, tensor in tensors.items()})
        else:
            response = post_tensors(service_url, PATH, tensors)
        assert response.status_code == 200, response.text
        told = response.json()["rows"]
        assert [(row["accepted"], len(row["tokens"]), row["acceptance"]) for row in told] == [(0, 1, [])] * rows


def test_padding_of_the_vocabulary_is_left_out(service_url):
    padded = [[*LOG_P, 50.0]]
    fields = {"target_logits": [padded * 2], "draft_logits": [[[*np.log(Q).tolist(), 9.0, 9.0]]], "vocab_size": 3}
    row = one(service_url, **fields)
    assert row["acceptance"] == pytest.approx([1 / 3])
    assert one(service_url, **{**fields, "draft_logits": None, "draft_probs": [[[*Q, 0, 0]]]}) == row


def test_the_sequence_and_the_order_count(service_url):
    row = one(service_url, params={"seed": 1, "repetition_penalty": 2.0}, prompt_ids=[[1, -1]])
    penalised = np.array([0.7, 0.2**2, 0.1])
    assert row["acceptance"] == pytest.approx([penalised[1] / penalised.sum()])
    knobs = {"seed": 1, "temperature": 2, "top_p": 0.85}
    first = one(service_url, params=knobs, draft_ids=[[2]])
    last = one(service_url, params=knobs, draft_ids=[[2]], order=["top_p", "temperature"])
    assert first["acceptance"][0] > 0
    assert last["acceptance"] == [0]


def test_parameters_are_echoed(service_url):
    answer = post(service_url, PATH, body(params={"seed": 1, "logit_bias": {"2": "-inf"}})).json()
    assert answer["effective"]["logit_bias"] == {"2": "-inf"}
    assert (answer["effective_draft"], answer["method"]) == (None, "standard")
    drafts = {"draft_logits": [[[0, 0, 0]]], "draft_params": [{"temperature": 0}], "method": "block"}
    answer = post(service_url, PATH, body(**drafts)).json()
    assert [one["temperature"] for one in answer["effective_draft"]] == [0]
    assert answer["method"] == "block"
    answer = post(service_url, PATH, body(draft_logits=[[[0, 0, 0]]])).json()
    assert answer["effective_draft"] == answer["effective"]


def test_it_is_counted_under_its_name(serve):
    with serve(Settings()) as url:
        post(url, PATH, body())
        series = httpx.get(f"{url}/metrics").text
    assert 'logitd_batches_total{op="verify",release="idle"} 1.0' in series
    assert 'logitd_requests_total{code="200",endpoint="/v1/verify"} 1.0' in series


def test_openapi_describes_every_field(service_url):
    operation = httpx.get(f"{service_url}/openapi.json").json()["paths"][PATH]["post"]
    content = operation["requestBody"]["content"]
    assert set(content) == {"application/json", SAFETENSORS}
    schema = content["application/json"]["schema"]
    assert schema["required"] == ["target_logits", "draft_ids"]
    assert set(schema["properties"]) == {
        *("target_logits", "draft_ids", "draft_probs", "draft_logits", "draft_lengths", "prompt_ids", "output_ids"),
        *("params", "draft_params", "method", "strict", "dialect", "order", "vocab_size"),
    }
    assert all(field["description"] for field in schema["properties"].values())
    assert {"200", "400", "413", "415", "422", "429", "503", "504"} <= set(operation["responses"])
