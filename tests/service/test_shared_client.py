"""`Client(shared_memory=True)`: the same answers, nothing left behind, and a body where memory cannot be shared."""

import asyncio
import glob
import os
import threading
from dataclasses import replace

import httpx
import numpy as np
import pytest
from running import inside

from logitd import AsyncClient, Client, InvalidRequest
from logitd.client.call import sample_request
from logitd.client.placed import is_expressible
from logitd.client.region import Pool, Region, room_for
from logitd.settings import Settings

LOGITS = (np.random.default_rng(7).normal(size=(4, 20_000)) * 4).astype(np.float32)
MASK = np.full((4, 625), -1, np.int32)
MASK[:, ::3] = 0x0F0F0F0F


@pytest.fixture(scope="module")
def url():
    with inside(Settings(shared_memory=True)) as (_, url, _):
        yield url


class Counting(httpx.HTTPTransport):
    """The paths of what was asked, and the bytes of the bodies."""

    def __init__(self):
        super().__init__()
        self.paths, self.sent = [], []

    def handle_request(self, request):
        self.paths.append(request.url.path)
        self.sent.append(len(request.content))
        return super().handle_request(request)

    def asked(self, end):
        return sum(path.endswith(end) for path in self.paths)


@pytest.fixture
def shared(url):
    """A client that shares memory, and what it asks."""
    transport = Counting()
    with Client(url, shared_memory=True, transport=transport) as client:
        yield client, transport


def registered(url):
    return httpx.get(f"{url}/v2/systemsharedmemory/status").json()


def files():
    return glob.glob(f"/dev/shm/logitd-{os.getpid()}-*")


def same(one, other):
    return replace(one, seconds={}) == replace(other, seconds={})


@pytest.mark.parametrize(
    "arguments",
    [
        {"seed": 1},
        {"seed": 2**64 - 1, "temperature": 0.7, "top_p": 0.9, "top_k": 50, "min_p": 0.01, "step": 5, "stream": 3},
        {"seed": 1, "banned_ids": [1, 2, 3], "logit_bias": {"7": 3.5, "8": "-inf"}, "ties": "all"},
        {"params": [{"seed": row, "temperature": 0.1 * (row + 1), "top_p": 0.7} for row in range(4)]},
        {"params": [{"seed": row, "step": row, "banned_ids": [4]} for row in range(4)], "top_k": -1},
        {"seed": 3, "mask": MASK},
        {"temperature": 0},
    ],
    ids=["seed", "all", "structured", "rows", "rows-and-shared", "mask", "greedy"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_the_same_answer(shared, url, arguments, dtype):
    client, transport = shared
    logits = LOGITS.astype(dtype)
    with Client(url) as plain:
        expected = plain.sample(logits, **arguments)
    got = client.sample(logits, **arguments)
    if "seed" not in str(arguments):  # greedy rows have seeds that the service draws
        got, expected = ([replace(row, seed=None) for row in answer.rows] for answer in (got, expected))
        assert got == expected
    else:
        assert same(got, expected)
    assert transport.asked("/v2/models/sample/infer") == 1
    assert transport.asked("/v1/sample") == 0
    assert max(transport.sent) < 5000


def test_a_region_is_used_again_and_nothing_is_left(url):
    transport = Counting()
    with Client(url, shared_memory=True, transport=transport) as client:
        tokens = [client.sample(LOGITS + step, seed=step).tokens.tolist() for step in range(5)]
        assert transport.asked("/register") == 1
        assert len(registered(url)) == 1
        assert files() == []  # not even while it is used
    assert transport.asked("/unregister") == 1
    assert registered(url) == []
    with Client(url) as plain:
        assert tokens == [plain.sample(LOGITS + step, seed=step).tokens.tolist() for step in range(5)]


def test_threads_have_regions_of_their_own(url):
    wrong = []
    with Client(url, shared_memory=True) as client, Client(url) as plain:
        expected = [plain.sample(LOGITS * (1 + worker), seed=worker).tokens.tolist() for worker in range(6)]

        def ask(worker):
            for _ in range(5):
                if client.sample(LOGITS * (1 + worker), seed=worker).tokens.tolist() != expected[worker]:
                    wrong.append(worker)

        workers = [threading.Thread(target=ask, args=(worker,)) for worker in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert 1 <= len(registered(url)) <= 6
    assert wrong == []
    assert registered(url) == []


def test_the_asynchronous_client(url):
    async def ask():
        async with AsyncClient(url, shared_memory=True) as client:
            answers = await asyncio.gather(*(client.sample(LOGITS, seed=seed) for seed in range(4)))
            assert len(registered(url)) >= 1
        return [answer.tokens.tolist() for answer in answers]

    with Client(url) as plain:
        assert asyncio.run(ask()) == [plain.sample(LOGITS, seed=seed).tokens.tolist() for seed in range(4)]
    assert registered(url) == []


def test_a_failed_row_has_its_whole_error(shared, url):
    client, transport = shared
    bad = LOGITS.copy()
    bad[2, 5] = np.nan
    with Client(url) as plain:
        assert same(client.sample(bad, seed=1), plain.sample(bad, seed=1))
    assert (transport.asked("/infer"), transport.asked("/v1/sample")) == (1, 1)


def test_a_refusal_is_the_same(shared, url):
    client, _ = shared
    told = []
    for asked in (client, Client(url)):
        with pytest.raises(InvalidRequest) as refused:
            asked.sample(LOGITS, seed=1, top_p=7)
        told.append((str(refused.value), refused.value.fields))
    asked.close()
    assert told[0] == told[1]
    assert "params.top_p" in told[0][0]


def test_a_service_that_forgot_the_region(shared, url):
    client, transport = shared
    client.sample(LOGITS, seed=1)
    httpx.post(f"{url}/v2/systemsharedmemory/unregister")
    with Client(url) as plain:
        assert same(client.sample(LOGITS, seed=2), plain.sample(LOGITS, seed=2))
    assert (transport.asked("/register"), transport.asked("/v1/sample")) == (2, 0)
    assert len(registered(url)) == 1


def test_a_service_without_shared_memory(service_url):
    transport = Counting()
    with Client(service_url, shared_memory=True, transport=transport) as client, Client(service_url) as plain:
        for seed in range(3):
            assert same(client.sample(LOGITS, seed=seed), plain.sample(LOGITS, seed=seed))
    assert (transport.asked("/register"), transport.asked("/infer"), transport.asked("/v1/sample")) == (1, 0, 3)
    assert files() == []


def test_no_memory_to_share(shared, monkeypatch):
    monkeypatch.setattr("logitd.client.region._DIRECTORY", "/nowhere")
    client, transport = shared
    assert len(client.sample(LOGITS, seed=1).rows) == 4
    assert transport.paths == ["/v1/sample"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"logprobs": 2},
        {"trace": True},
        {"strict": True},
        {"n": 2},
        {"compact": 50},
        {"seed": "12"},
        {"params": [{"seed": 1}, {"seed": None}, {}, {"seed": 2}]},
        {"params": [{"banned_ids": [row]} for row in range(4)]},
        {"params": [{"seed": 1}] * 3},
        {"beside": {"mask": MASK.astype(np.int64)}},
    ],
    ids=str,
)
def test_what_goes_in_a_body(arguments):
    arguments = dict(arguments)
    keywords = {name: arguments.pop(name) for name in ("n", "seed") if name in arguments}
    size = arguments.pop("compact", None)
    assert not is_expressible(sample_request(LOGITS, keywords=keywords, size=size, **arguments))


def test_small_logits_go_in_a_body(shared):
    client, transport = shared
    client.sample(LOGITS[:, :100], seed=1)
    assert transport.paths == ["/v1/sample"]


def test_a_pool_keeps_the_largest():
    pool = Pool()
    regions = [Region(4096 * (1 + index)) for index in range(10)]
    try:
        surplus = [one for region in regions for one in pool.give(region)]
        assert [one.byte_size for one in surplus] == [4096, 8192]
        assert pool.take(4096 * 5).byte_size == 4096 * 5
        assert pool.take(4096 * 11) is None
        assert len(pool.empty()) == 7
    finally:
        for region in regions:
            region.close()
    assert files() == []
    assert [room_for(size) for size in (1, 1 << 20, (1 << 20) + 1, 5 << 20)] == [1 << 20, 1 << 20, 2 << 20, 8 << 20]
