"""POST /v1/attention/compare: trials, recommendations and progress, over HTTP."""

import json
import time

import httpx
import numpy as np
import pytest
from test_attention import relative_error, softmax_attention, tensors
from wire import SAFETENSORS, packed, post, post_tensors

from logitd.settings import Settings

PATH = "/v1/attention/compare"


def compared(url, sent, **fields):
    response = post_tensors(url, PATH, sent, fields)
    assert response.status_code == 200, response.text
    return response.json()


def events_of(text):
    """Return (name, data) of each event."""
    blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.strip().split("\n\n")]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


def test_every_method_is_tried_and_judged(service_url):
    sent = tensors(300, dim=8, spread=0.6)
    answer = compared(service_url, sent)
    methods = [trial["method"] for trial in answer["trials"]]
    assert methods[0] == "exact"
    assert {"moment", "hybrid", "favor_plus", "trig", "elu", "taylor2", "cosformer", "nystrom", "mean_v"} <= set(
        methods
    )
    assert [trial["feature_dim"] for trial in answer["trials"] if trial["method"] == "favor_plus"] == [16, 32, 64]
    exact, mean_v = answer["trials"][0], answer["trials"][methods.index("mean_v")]
    assert (exact["cost"], exact["state_bytes"]) == (1.0, None)
    for head in exact["heads"][0]:
        assert head["relative_error"] < 1e-5
        assert head["rank_correlation"] > 0.999
    for head in mean_v["heads"][0]:
        assert head["relative_error"] == pytest.approx(head["mean_v_error"], rel=1e-4)
        assert head["rank_correlation"] == 0
    assert all(trial["seconds"] > 0 and trial["cost"] > 0 for trial in answer["trials"][1:])


def test_the_error_that_is_told_is_the_error(service_url):
    sent = tensors(500, dim=8, spread=0.8)
    answer = compared(service_url, sent, methods=["moment", "favor_plus"], feature_dims=[32], audit_rows=500)
    assert [trial["method"] for trial in answer["trials"]] == ["exact", "moment", "favor_plus"]
    want = softmax_attention(**sent)
    for trial in answer["trials"][1:]:
        fields = {"mode": trial["method"], "feature_dim": trial["feature_dim"], "policy": "best_effort"}
        fields = {name: value for name, value in fields.items() if value is not None}
        response = post_tensors(service_url, "/v1/attention", sent, fields)
        output = np.array(response.json()["output"])
        for place, head in enumerate(trial["heads"][0]):
            assert head["relative_error"] == pytest.approx(relative_error(output[0, place], want[0, place]), rel=1e-3)
    moment, favor = answer["trials"][1:]
    assert moment["heads"][0][0]["rank_correlation"] > favor["heads"][0][0]["rank_correlation"] > 0.2


def test_recommendations_follow_the_tolerance(service_url):
    smooth, rough = tensors(2500, heads=1, dim=32, spread=0.5), tensors(2500, heads=1, dim=32, spread=3, seed=1)
    sent = {name: np.concatenate([smooth[name], rough[name]], 1) for name in smooth}
    [[easy, hard]] = compared(service_url, sent, methods=["moment", "hybrid", "mean_v"], tolerance=0.1)["heads"]
    assert easy["recommendation"]["mode"] in ("moment", "hybrid")
    assert easy["recommendation"]["expected_error"] <= 0.1
    assert easy["recommendation"]["cost"] < 1
    assert hard["recommendation"]["mode"] == "exact"
    assert "0.1" in hard["recommendation"]["reason"]
    assert easy["predicted_error"] < 0.1 < hard["predicted_error"]
    [[lax, _]] = compared(service_url, sent, methods=["moment", "hybrid", "mean_v"], tolerance=10)["heads"]
    assert lax["recommendation"]["mode"] == "mean_v"


def test_progress_comes_as_events(service_url):
    body = packed(tensors(200, dim=8), {"methods": ["moment", "elu"]})
    response = post(service_url, PATH, body, SAFETENSORS, accept="text/event-stream")
    assert response.headers["content-type"].startswith("text/event-stream")
    *progress, (last, result) = events_of(response.text)
    assert [name for name, _ in progress] == ["progress"] * 3
    assert [(data["done"], data["total"], data["method"]) for _, data in progress] == [
        (1, 3, "exact"),
        (2, 3, "moment"),
        (3, 3, "elu"),
    ]
    assert last == "result"
    assert [trial["method"] for trial in result["trials"]] == ["exact", "moment", "elu"]
    assert result["seconds"]["compute"] > 0


def test_a_refusal_comes_as_an_event(service_url):
    body = packed(tensors(3), {"methods": ["magic"]})
    assert post(service_url, PATH, body, SAFETENSORS).status_code == 422
    response = post(service_url, PATH, body, SAFETENSORS, accept="text/event-stream")
    [(name, data)] = events_of(response.text)
    assert (name, data["status"], data["errors"][0]["path"]) == ("error", 422, "methods")


def test_what_a_method_cannot_keep_is_left_out(service_url):
    answer = compared(service_url, tensors(100), window=5, methods=["moment", "mean_v"])
    assert [trial["method"] for trial in answer["trials"]] == ["exact"]
    assert {head["recommendation"]["mode"] for head in answer["heads"][0]} == {"exact"}


def test_a_reader_that_leaves_ends_the_work(serve):
    with serve(Settings(attention_queue=1)) as url:
        body = packed(tensors(8000, heads=4, dim=32), {})  # seconds of work, were it not ended
        headers = {"content-type": SAFETENSORS, "accept": "text/event-stream"}
        with httpx.stream("POST", f"{url}{PATH}", content=body, headers=headers, timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: progress"
            assert post(url, PATH, packed(tensors(2)), SAFETENSORS).status_code == 503
        deadline = time.monotonic() + 20
        while post(url, PATH, packed(tensors(2), {"methods": []}), SAFETENSORS).status_code == 503:
            assert time.monotonic() < deadline, "its place was not given back"
            time.sleep(0.1)
        assert 'logitd_cancelled_total{stage="computing"} 1.0' in httpx.get(f"{url}/metrics").text


def test_work_counts_every_trial(serve):
    with serve(Settings(max_attention_multiply_adds=9 * 10**6)) as url:
        sent = tensors(300, heads=1, dim=16)
        assert post_tensors(url, "/v1/attention", sent).status_code == 200
        assert post_tensors(url, PATH, sent, {"methods": ["elu"]}).status_code == 422


def test_what_is_too_large_for_the_call_is_left_out_unless_asked_for(service_url):
    sent = tensors(1, heads=1, dim=1024)
    tried = [trial["method"] for trial in compared(service_url, sent, feature_dims=[2])["trials"]]
    assert "elu" in tried
    assert "taylor2" not in tried
    assert post_tensors(service_url, PATH, sent, {"methods": ["taylor2"]}).status_code == 422


def test_numbers_that_second_order_cannot_hold(service_url):
    sent = tensors(5, heads=1)
    answer = compared(service_url, sent, scale=1e300, methods=["moment", "mean_v"])
    assert "moment" not in [trial["method"] for trial in answer["trials"]]
    assert answer["heads"][0][0]["predicted_error"] is None
    empty = {name: array[:, :, :0] if name != "q" else array for name, array in sent.items()}
    assert compared(service_url, empty, methods=["mean_v"])["heads"][0][0]["recommendation"]["mode"]
