"""`Client.score`, and the kinds of `Client.softmax` that came with it."""

import asyncio
import math

import httpx
import numpy as np
import pytest
import torch

from logitd import AsyncClient, Client, InvalidRequest, Overloaded, UnexpectedAnswer
from logitd.client.score_call import read_score
from logitd_kernels.gumbel import Noise, gumbel_noise

LOGITS = np.random.default_rng(5).normal(size=(4, 300)).astype(np.float32)
TARGETS = np.array([7, 0, 299, 12])
EXPECTED = [
    math.log(np.exp(row[t].astype(float)) / np.exp(row.astype(float)).sum())
    for row, t in zip(LOGITS, TARGETS, strict=True)
]


@pytest.fixture(scope="module")
def client(service_url):
    with Client(service_url) as client:
        yield client


def test_score(client):
    told = client.score(LOGITS, TARGETS, gradient=True)
    assert told.logprob_raw == pytest.approx(EXPECTED)
    assert told.logprob == pytest.approx(EXPECTED)
    assert told.target.tolist() == TARGETS.tolist()
    assert told.rank.tolist() == [1 + int((row > row[t]).sum()) for row, t in zip(LOGITS, TARGETS, strict=True)]
    assert told.cross_entropy == pytest.approx(-np.mean(EXPECTED))
    assert told.perplexity_raw == pytest.approx(math.exp(-np.mean(EXPECTED)))
    assert (told.tokens, told.errors) == (4, [None] * 4)
    assert told.gradient.dtype == np.float32
    assert told.gradient.sum(1) == pytest.approx([0] * 4, abs=1e-5)
    assert told.effective["temperature"] == 1
    assert client.score(LOGITS, TARGETS).gradient is None


def test_parameters_and_what_is_known_of_the_rows(client):
    told = client.score(LOGITS, TARGETS, params=[{"top_k": 1}, {}, {}, {}], temperature=2.0)
    assert told.logprob[0] == -math.inf
    assert (told.cross_entropy, told.perplexity) == (math.inf, math.inf)
    assert told.cross_entropy_raw == pytest.approx(-np.mean(EXPECTED))
    beside = {"output_ids": [[7]], "mask": np.full((1, 10), -1, np.int32), "guidance_logits": LOGITS[:1]}
    plain = client.score(LOGITS[0], 7, **beside)
    penalised = client.score(LOGITS[0], 7, presence_penalty=1.0, **beside)
    assert penalised.logprob[0] < plain.logprob[0] - 0.9
    ordered = [client.score(LOGITS[0], 7, order=order, top_p=0.5, top_k=3) for order in (None, ["top_p", "top_k"])]
    assert [one.tokens for one in ordered] == [1, 1]


def test_rows_that_are_left_out_or_fail(client):
    bad = LOGITS.copy()
    bad[1, 5] = np.nan
    told = client.score(bad, [7, 0, -1, 12], gradient=True)
    assert [error and error.code for error in told.errors] == [None, "non_finite", None, None]
    assert told.errors[1].row == 1
    assert np.isnan(told.logprob).tolist() == [False, True, True, False]
    assert told.rank[[1, 2]].tolist() == [-1, -1]
    assert np.isnan(told.gradient[1]).all()
    assert (told.gradient[2] == 0).all()
    assert told.tokens == 2
    nothing = client.score(LOGITS, [-1] * 4)
    assert nothing.tokens == 0
    assert math.isnan(nothing.cross_entropy)


@pytest.mark.parametrize("targets", [[7, 0, 299, 12], np.array(TARGETS, np.int32), torch.tensor(TARGETS)])
def test_targets_of_any_library(client, targets):
    assert client.score(torch.from_numpy(LOGITS), targets).logprob == pytest.approx(EXPECTED)


def test_what_the_service_refuses(client):
    with pytest.raises(InvalidRequest) as refused:
        client.score(LOGITS, [0, 0, 0, 300])
    assert refused.value.fields[0].path == "targets[3]"
    with pytest.raises(InvalidRequest) as refused:
        client.score(LOGITS, TARGETS, tempratur=1)
    assert refused.value.fields[0].path == "params.tempratur"
    with pytest.raises(InvalidRequest) as refused:
        client.softmax(LOGITS, seed=1)
    assert refused.value.fields[0].path == "seed"


def test_an_answer_that_is_none_is_named():
    with pytest.raises(UnexpectedAnswer, match="score"):
        read_score(b"{}")


def test_gumbel_softmax(client):
    told = client.softmax(LOGITS, 0.7, "gumbel_softmax", seed=[1, 2, 3, 4], stream=5, step=np.int64(6))
    assert told.seed.tolist() == [1, 2, 3, 4]
    noisy = (LOGITS[2] + gumbel_noise(Noise(3, 5, 6), 300)) / 0.7
    assert told.values[2] == pytest.approx(np.exp(noisy) / np.exp(noisy).sum(), rel=1e-5)
    drawn = client.softmax(LOGITS, 0.7, "gumbel_softmax")
    assert len(set(drawn.seed.tolist())) == 4
    again = client.softmax(LOGITS, 0.7, "gumbel_softmax", seed=drawn.seed)
    assert again.values.tolist() == drawn.values.tolist()
    assert client.softmax(LOGITS).seed is None


def test_sparse_maps(client):
    told = client.softmax([[-2.0, 0.0, 0.5]], kind="sparsemax")
    assert told.values.tolist() == [[0, 0.25, 0.75]]
    assert np.isnan(told.log_z).all()


@pytest.mark.parametrize(("seed", "tries"), [(None, 1), ([1, None, 1, 1], 1), (-1, 1), (5, 3), ([1, 2, 3, 4], 3)])
def test_noise_without_a_seed_is_not_asked_for_twice(seed, tries):
    asked = []

    def busy(request):
        asked.append(request)
        return httpx.Response(503)

    client = Client(transport=httpx.MockTransport(busy), retries=2, sleep=lambda seconds: None)
    with client, pytest.raises(Overloaded):
        client.softmax(LOGITS, kind="gumbel_softmax", seed=seed)
    assert len(asked) == tries


def test_the_async_client_is_the_same(client, service_url):
    async def everything():
        async with AsyncClient(service_url) as twin:
            noise = twin.softmax(LOGITS, 2.0, "gumbel_softmax", seed=3, stream=1)
            return await twin.score(LOGITS, TARGETS, top_k=40, gradient=True), await noise

    scored, noisy = asyncio.run(everything())
    own = client.score(LOGITS, TARGETS, top_k=40, gradient=True)
    assert scored.logprob.tolist() == own.logprob.tolist()
    assert scored.gradient.tolist() == own.gradient.tolist()
    assert noisy.values.tolist() == client.softmax(LOGITS, 2.0, "gumbel_softmax", seed=3, stream=1).values.tolist()
