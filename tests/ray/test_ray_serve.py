"""The demo, the same tokens and every refusal through Ray Serve, with two small replicas of which one dies."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from running import until
from served import START_SECONDS, served
from under_load import Load
from wire import SAFETENSORS, packed

from logitd import Client

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

GENERATE = Path(__file__).resolve().parents[2] / "examples" / "generate.py"
LARGE = 128_256
VOCABULARIES = [100, 62_500, LARGE, 500_000, 1_000_000]  # float32: 400 bytes, 0.25, 0.5, 2 and 4 MB
AT_ONCE = 4  # max_queued_requests: to the proxy a request waits until a replica has said that it takes it


@pytest.fixture(scope="module")
def ray():
    with tempfile.TemporaryDirectory(prefix="r") as folder, served(Path(folder), replicas=2) as service:
        yield service  # a short path: it holds Unix domain sockets


def rows(vocabulary, count=1):
    return np.random.default_rng(vocabulary).normal(size=(count, vocabulary)).astype(np.float32)


def answer(client, logits, seed):
    [row] = client.sample(logits, seed=seed, temperature=0.8, top_p=0.9).rows
    return row.token, row.logprob, row.entropy, row.kept


def test_the_demo_prints_what_a_single_service_prints(ray, service_url):
    def run(url):
        command = [sys.executable, GENERATE, "--url", url, "--words", "4"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return [line for line in lines if not re.search(r"\d ms$", line)]

    assert run(ray.url) == run(service_url)


def test_the_same_seed_draws_the_same_token_on_both_replicas(ray, service_url):
    asked = [(rows(vocabulary), seed) for vocabulary in VOCABULARIES for seed in range(4)]
    with Client(service_url) as alone:
        expected = [answer(alone, *one) for one in asked]
    before = ray.sampled()
    assert len(before) == 2
    with Client(ray.url, retries=0) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda one: answer(client, *one), asked * 5))
    assert found == expected * 5
    after = ray.sampled()
    gained = [after[url] - before[url] for url in before]
    assert sum(gained) == len(found)
    assert min(gained) > len(found) / 10, gained


def test_who_finds_no_room_is_told_when_to_come_back(ray):
    logits = rows(1_000_000)
    body = packed({"logits": logits}, {"params": {"seed": 1}})
    send = partial(httpx.post, f"{ray.url}/v1/sample", content=body, headers={"content-type": SAFETENSORS}, timeout=60)
    with ThreadPoolExecutor(40) as pool:
        answers = [one.result() for one in [pool.submit(send) for _ in range(120)]]
    refused = [one for one in answers if one.status_code != 200]
    assert 0 < len(refused) < len(answers)
    for one in refused:
        assert one.status_code == 429
        assert one.headers["retry-after"] == "1"
        assert one.headers["content-type"] == "application/problem+json"
        assert one.json()["type"] == "urn:logitd:problem:overloaded"
        assert one.json()["error"] == one.json()["detail"]


@pytest.fixture
def cases(service_url):
    asked = [(rows(LARGE), seed) for seed in range(4)]
    with Client(service_url) as alone:
        return [(arguments, answer(alone, *arguments)) for arguments in asked]


def test_a_replica_dies_under_load_and_another_takes_its_place(ray, cases):
    [dies, stays] = ray.replica_processes()
    with Load(ray.url, cases, answer, threads=3, retries=6) as load:
        load.more(10)
        os.kill(dies, signal.SIGKILL)
        until(lambda: dies not in ray.replica_processes(), seconds=30)
        until(lambda: len(ray.ready()) == 2, seconds=START_SECONDS)
    assert not load.faults
    assert stays in ray.replica_processes()


def test_a_replica_that_is_taken_away_answers_what_it_has(ray, cases):
    with Load(ray.url, cases, answer, threads=3, retries=0) as load:
        load.more(10)
        ray.deploy(replicas=1)
        until(lambda: len(ray.replica_processes()) == 1, seconds=60)
    assert not load.faults
