"""POST /v1/verify: answers over HTTP in both forms, equal to the kernels'."""

import numpy as np
import pytest
import torch
from wire import SAFETENSORS, packed, post, post_tensors, unpacked

import logitd_kernels as K
from logitd.settings import Settings
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.verify import verify

PATH = "/v1/verify"
P, Q = [0.7, 0.2, 0.1], [0.1, 0.6, 0.3]
LOG_P = np.log(P).tolist()
RNG = np.random.default_rng(2)
TARGET = RNG.normal(0, 2, (6, 4, 30)).astype(np.float32)
LOGITS = TARGET[:, :3] + RNG.normal(0, 0.5, (6, 3, 30)).astype(np.float32)
IDS = RNG.integers(-1, 30, (6, 3))
PARAMS = [{"seed": row, "temperature": 0.8, "top_p": 0.95, "step": 7} for row in range(6)]


def body(**fields):
    return {"target_logits": [[LOG_P, LOG_P]], "draft_ids": [[1]], "params": {"seed": 1}, **fields}


def one(url, **fields):
    """Verify one row over JSON."""
    response = post(url, PATH, body(**fields))
    assert response.status_code == 200, response.text
    return response.json()["rows"][0]


def softmax(logits):
    return torch.from_numpy(logits).softmax(-1).numpy()


@pytest.mark.parametrize("method", ["standard", "block"])
@pytest.mark.parametrize(("x", "acceptance"), [(0, 1), (1, 1 / 3), (2, 1 / 3)])
def test_worked_numbers(service_url, x, acceptance, method):
    row = one(service_url, draft_ids=[[x]], draft_probs=[[Q]], method=method)
    assert row["acceptance"] == pytest.approx([acceptance])
    assert row["tokens"] in ([[x, token] for token in range(3)] if row["accepted"] else [[0, -1]])


def test_a_draft_that_was_not_drawn(service_url):
    assert one(service_url)["acceptance"] == pytest.approx([0.2])
    assert one(service_url, params={"temperature": 0})["tokens"] == [0, -1]
    assert one(service_url, params={"temperature": 0}, draft_ids=[[0]])["tokens"] == [0, 0]


def test_a_row_says_what_replays_it(service_url):
    row = one(service_url, params={"stream": 3, "step": 9}, draft_ids=[[-1]])
    assert (row["stream"], row["step"], row["error"], row["accepted"], row["acceptance"]) == (3, 9, None, 0, [None])
    again = one(service_url, params={"seed": row["seed"], "stream": 3, "step": 9}, draft_ids=[[-1]])
    assert again == row
    assert row["seed"] < 1 << 53


@pytest.mark.parametrize("method", ["standard", "block"])
@pytest.mark.parametrize("kind", ["draft_probs", "draft_logits", None])
@pytest.mark.parametrize("sent", ["json", "safetensors"])
@pytest.mark.parametrize("received", ["json", "safetensors"])
def test_every_form_says_what_the_kernels_do(service_url, received, sent, kind, method):
    draft = {} if kind is None else {kind: softmax(LOGITS) if kind == "draft_probs" else LOGITS}
    if sent == "json":
        tensors = {"target_logits": TARGET, "draft_ids": IDS, **draft}
        fields = {"params": PARAMS, "method": method}
        lists = {name: tensor.tolist() for name, tensor in tensors.items()}
        response = post(service_url, PATH, {**lists, **fields}, accept=accept(received))
    else:
        tensors = {"target_logits": TARGET, "draft_ids": IDS, **draft}
        request = {"params": PARAMS, "method": method}
        response = post_tensors(service_url, PATH, tensors, request, accept=accept(received))
    wide = torch.float64 if sent == "json" else torch.float32
    floats = {name: torch.from_numpy(tensor).to(wide) for name, tensor in draft.items()}
    rows = Speculation(torch.from_numpy(TARGET).to(wide), torch.from_numpy(IDS), **floats)
    expected = verify(rows, [K.check(values) for values in PARAMS], method=method)
    assert answers(response) == [(a.tokens, a.accepted, a.acceptance, a.seed) for a in expected]


def accept(form):
    return SAFETENSORS if form == "safetensors" else "application/json"


def answers(response):
    """Return (tokens, accepted, acceptance, seed) of each row, whatever the form."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"] == SAFETENSORS:
        tensors, rest = unpacked(response)
        dtypes = {name: tensor.dtype.name for name, tensor in tensors.items()}
        assert dtypes == {
            "tokens": "int64",
            "accepted": "int32",
            "acceptance": "float64",
            "seed": "uint64",
            "status": "int32",
        }
        assert len(rest["rows"]) == len(tensors["tokens"])
        told = [tensors[name].tolist() for name in ("tokens", "accepted", "acceptance", "seed")]
        return [(t, n, [x for x in a if x == x], s) for t, n, a, s in zip(*told, strict=True)]
    return [
        (row["tokens"], row["accepted"], [x for x in row["acceptance"] if x is not None], row["seed"])
        for row in response.json()["rows"]
    ]


def test_a_bad_row_fails_alone(service_url):
    target, probs = TARGET.copy(), softmax(LOGITS)
    target[1, 0, 5], probs[3, 0, 2] = np.nan, -0.5
    ids = np.abs(IDS)
    tensors = {"target_logits": target, "draft_ids": ids, "draft_probs": probs}
    response = post_tensors(service_url, PATH, tensors, {"params": PARAMS}, accept=SAFETENSORS)
    columns, rest = unpacked(response)
    assert columns["status"].tolist() == [0, 1, 0, 1, 0, 0]
    assert columns["tokens"][1].tolist() == [-1] * 4
    assert columns["accepted"][[1, 3]].tolist() == [-1, -1]
    assert np.isnan(columns["acceptance"][1]).all()
    errors = [row["error"] for row in rest["rows"]]
    assert [error and (error["code"], error["row"]) for error in errors] == [
        None,
        ("non_finite", 1),
        None,
        ("bad_draft", 3),
        None,
        None,
    ]
    assert errors[1]["detail"].startswith("position 0: logit 5 is NaN")
    rows = post(service_url, PATH, packed(tensors, {"params": PARAMS}), SAFETENSORS).json()["rows"]
    assert [row["tokens"] for row in rows] == [
        None if status else tokens for tokens, status in zip(columns["tokens"].tolist(), columns["status"], strict=True)
    ]
    assert rows[3]["acceptance"] is rows[3]["seed"] is rows[3]["accepted"] is None


def test_rows_that_pass_the_budget_of_a_batch_are_taken_in_parts(serve):
    tensors = {"target_logits": TARGET, "draft_ids": IDS}
    bad = TARGET.copy()
    bad[4, 0, 0] = np.inf
    ids = np.abs(IDS)
    with serve(Settings(batch_rows=2)) as url, serve(Settings()) as whole:
        for own in (tensors, {"target_logits": bad, "draft_ids": ids}):
            parts, at_once = (post_tensors(u, PATH, own, {"params": PARAMS}).json()["rows"] for u in (url, whole))
            assert parts == at_once
        assert parts[4]["error"]["row"] == 4
        refused = post_tensors(url, PATH, tensors, {"params": [*PARAMS[:5], {"banned_ids": [30]}]})
        assert refused.json()["errors"][0]["path"] == "params[5].banned_ids"
