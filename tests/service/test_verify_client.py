"""`Client.verify` and `AsyncClient.verify` against a real service."""

import asyncio

import numpy as np
import pytest
import torch

import logitd_kernels as K
from logitd import AsyncClient, Client, InvalidRequest, RowFailed
from logitd.client.verify_call import verify_call
from logitd.errors import UnexpectedAnswer
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.verify import verify

RNG = np.random.default_rng(4)
TARGET = RNG.normal(0, 2, (3, 3, 40)).astype(np.float32)
DRAFT = TARGET[:, :2] + RNG.normal(0, 0.5, (3, 2, 40)).astype(np.float32)
PROBS = torch.from_numpy(DRAFT).softmax(-1).numpy()
IDS = np.array([[1, 2], [3, -1], [39, 0]])
KNOBS = {"temperature": 0.8, "top_p": 0.9}


@pytest.fixture(scope="module")
def client(service_url):
    with Client(service_url) as client:
        yield client


def expected(values, draft_values=None, method="standard", **draft):
    rows = Speculation(torch.from_numpy(TARGET), torch.from_numpy(IDS), **draft)
    drafts = None if draft_values is None else [K.check(own) for own in draft_values]
    return verify(rows, [K.check(own) for own in values], drafts, method=method)


def told(result):
    return [
        (tokens, accepted, [x for x in acceptance if x == x], seed)
        for tokens, accepted, acceptance, seed in zip(
            *(getattr(result, name).tolist() for name in ("tokens", "accepted", "acceptance", "seed")), strict=True
        )
    ]


@pytest.mark.parametrize("method", ["standard", "block"])
def test_a_result_is_what_the_kernels_computed(client, method):
    result = client.verify(TARGET, IDS, draft_probs=PROBS, method=method, **KNOBS, seed=5, step=2)
    values = [{**KNOBS, "seed": 5, "step": 2}] * 3
    answers = expected(values, method=method, draft_probs=torch.from_numpy(PROBS))
    assert told(result) == [tuple(answer) for answer in answers]
    assert (result.tokens.dtype, result.accepted.dtype, result.errors) == (np.int64, np.int32, [None] * 3)
    assert result.effective["top_p"] == 0.9
    assert result.effective_draft is None
    assert result.backend
    assert set(result.seconds) == {"read", "decode", "queue", "compute", "encode"}
    for row, answer in enumerate(answers):
        assert result.emitted(row) == answer.tokens[: answer.accepted + 1]
    assert result.raise_for_rows() is result


def test_rows_and_drafts_have_parameters_of_their_own(client):
    own = [{"temperature": 0}, {"seed": 8}, {"top_k": 3}]
    result = client.verify(
        torch.from_numpy(TARGET), torch.from_numpy(IDS), draft_logits=DRAFT, params=own, draft_params=KNOBS, seed=6
    )
    values = [{"seed": 6, **one} for one in own]
    answers = expected(values, [KNOBS] * 3, draft_logits=torch.from_numpy(DRAFT))
    assert told(result) == [tuple(answer) for answer in answers]
    assert result.effective_draft["temperature"] == 0.8
    assert [one["seed"] for one in result.effective] == [6, 8, 6]


def test_lists_lengths_sequences_and_padding(client):
    result = client.verify(
        [[[0, 0, -50.0, 9]] * 3],
        [[1, 0]],
        draft_lengths=[1],
        prompt_ids=[[0]],
        vocab_size=3,
        no_repeat_ngram_size=1,
        seed=1,
    )
    assert result.acceptance[0][0] == pytest.approx(1)  # 0 came already, 3 is padding
    assert result.tokens.tolist() == [[1, 2, -1]]
    assert np.isnan(result.acceptance[0][1])
    assert client.verify(np.zeros((2, 1, 3)), [[], []], seed=1).tokens.shape == (2, 1)
    same = [client.verify(TARGET, IDS, order=["top_p", "temperature"], **KNOBS, seed=1) for _ in range(2)]
    assert told(same[0]) == told(same[1])
    first = client.verify(TARGET, IDS, **KNOBS, seed=1)
    assert told(client.verify(TARGET, IDS, dialect="vllm", **KNOBS, seed=1)) == told(first)


def test_a_bad_row_fails_alone(client):
    target = TARGET.copy()
    target[1, 0, 3] = np.nan
    result = client.verify(target, IDS, seed=1)
    assert result.accepted[1] == -1
    assert (result.tokens[1] == -1).all()
    assert [error is None for error in result.errors] == [True, False, True]
    assert (result.errors[1].code, result.errors[1].row) == ("non_finite", 1)
    assert len(result.emitted(0)) == result.accepted[0] + 1
    for ask in (lambda: result.emitted(1), result.raise_for_rows):
        with pytest.raises(RowFailed, match="position 0: logit 3 is NaN"):
            ask()
    with pytest.raises(InvalidRequest, match="strict is set"):
        client.verify(target, IDS, seed=1, strict=True)


def test_the_service_names_what_it_refuses(client):
    with pytest.raises(InvalidRequest) as caught:
        client.verify(TARGET, IDS, params=[{}, {"banned_ids": [40]}, {}])
    assert caught.value.fields[0].path == "params[1].banned_ids"
    with pytest.raises(TypeError, match="target_logits must be one of F16, BF16, F32, F64, got I64"):
        client.verify(IDS[..., None], IDS)
    with pytest.raises(TypeError, match="draft_probs must be one of"):
        client.verify(TARGET, IDS, draft_probs=np.zeros((3, 2, 40), np.int32))


def test_only_seeded_calls_are_repeated():
    assert verify_call(TARGET, IDS, params=[{"seed": 1}, {"seed": "2"}], keywords={}).repeatable
    assert verify_call(TARGET, IDS, keywords={"seed": 0}).repeatable
    assert not verify_call(TARGET, IDS, params=[{"seed": 1}, {}]).repeatable
    assert not verify_call(TARGET, IDS, keywords={"seed": -1}).repeatable


def test_an_answer_that_cannot_be_read_is_named():
    with pytest.raises(UnexpectedAnswer, match="the verify answer cannot be read"):
        verify_call(TARGET, IDS).read(b"{}")


def test_the_async_client_is_the_same(client, service_url):
    async def ask():
        async with AsyncClient(service_url) as own:
            return await own.verify(TARGET, IDS, draft_logits=DRAFT, method="block", **KNOBS, seed=3)

    assert told(asyncio.run(ask())) == told(
        client.verify(TARGET, IDS, draft_logits=DRAFT, method="block", **KNOBS, seed=3)
    )
