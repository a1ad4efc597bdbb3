"""The same (row, params, seed, stream, step) gives the same token, however and in whatever company it is sent."""

import concurrent.futures
import io

import httpx
import numpy as np
import pytest
from wire import head_of, post, post_tensors, sampled

from logitd.settings import Settings

VOCAB = 5000
PARAMS = [
    {"seed": 1},
    {"seed": 2, "stream": 3, "step": 4, "temperature": 0.8, "top_p": 0.9},
    {"seed": 3, "top_k": 40, "temperature": 1.3},
    {"seed": 4, "min_p": 0.02},
]


@pytest.fixture(scope="module")
def rows():
    return (np.random.default_rng(7).normal(size=(64, VOCAB)) * 3).astype(np.float32)


@pytest.mark.parametrize("params", PARAMS)
def test_alone_or_anywhere_in_a_batch(service_url, rows, params):
    batch = post_tensors(service_url, "/v1/sample", {"logits": rows}, {"params": params}).json()["rows"]
    turned = post_tensors(service_url, "/v1/sample", {"logits": np.roll(rows, 17, 0)}, {"params": params}).json()[
        "rows"
    ]
    assert [batch[place] for place in range(64)] == [turned[(place + 17) % 64] for place in range(64)]
    for place in (0, 31, 63):
        alone = post_tensors(service_url, "/v1/sample", {"logits": rows[place : place + 1]}, {"params": params})
        assert alone.json()["rows"] == [batch[place]]


@pytest.mark.parametrize("params", PARAMS)
def test_over_every_transport(service_url, rows, params):
    few = rows[:3]
    expected = post_tensors(service_url, "/v1/sample", {"logits": few}, {"params": params}).json()["rows"]
    assert sampled(service_url, few.tolist(), params) == expected
    assert (
        post_tensors(service_url, "/v1/sample", {"logits": few.astype(np.float64)}, {"params": params}).json()["rows"]
        == expected
    )
    stream = io.BytesIO()
    np.save(stream, few)
    npy = httpx.post(
        f"{service_url}/v1/sample",
        params=params,
        content=stream.getvalue(),
        headers={"content-type": "application/x-npy"},
    )
    assert npy.json()["rows"] == expected
    head = head_of(few, VOCAB, (1.0, params.get("temperature", 1.0)))
    whole = post_tensors(service_url, "/v1/sample", head, {"vocab_size": VOCAB, "params": params}).json()["rows"]
    assert [(row["token"], row["kept"], row["exact"]) for row in whole] == [
        (row["token"], row["kept"], True) for row in expected
    ]


def test_after_a_restart_and_with_other_thread_counts(serve, rows):
    answers = []
    for threads in (1, 3):
        with serve(Settings(compute_threads=threads)) as url:
            answers.append(post_tensors(url, "/v1/sample", {"logits": rows[:8]}, {"params": PARAMS[1]}).json()["rows"])
    assert answers[0] == answers[1]


def test_half_precision_rows_equal_their_widened_selves(service_url, rows):
    half = rows[:4].astype(np.float16)
    asked = {"params": {"seed": 9, "top_p": 0.8}}
    narrow = post_tensors(service_url, "/v1/sample", {"logits": half}, asked).json()["rows"]
    assert narrow == post_tensors(service_url, "/v1/sample", {"logits": half.astype(np.float32)}, asked).json()["rows"]


def test_streams_and_steps_are_different_draws(service_url):
    flat = [[0.0] * 1000] * 4
    rows = sampled(
        service_url, flat, [{"seed": 1, "stream": s, "step": t} for s, t in ((0, 0), (0, 1), (1, 0), (1, 1))]
    )
    assert len({row["token"] for row in rows}) == 4


def test_concurrent_requests_do_not_mix(service_url, rows):
    expected = post_tensors(service_url, "/v1/sample", {"logits": rows}, {"params": {"seed": 6}}).json()["rows"]

    def one(place):
        return post(service_url, "/v1/sample", {"logits": [rows[place].tolist()], "params": {"seed": 6}}).json()[
            "rows"
        ][0]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(64))) == expected
