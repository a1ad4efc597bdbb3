"""Load of every kind for as long as a block lasts, so that every panel has something to show."""

import contextlib
import itertools
import math
import random
import socket
import threading
import time
from urllib.parse import urlsplit

import httpx
import numpy as np
from loadtest.http.profiles import real

from logitd import Client, LogitdError

_CUTS = ({}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}, {"top_k": 50, "top_p": 0.95})
_WAVE_SECONDS = 240  # in the 20 s that are an hour here nothing much changes


def sampling(client, pick):
    """Rows under all kinds of cuts; the temperature rises and falls."""
    logits = real.rows()
    temperature = 1 + 0.3 * math.sin(2 * math.pi * time.monotonic() / _WAVE_SECONDS)
    rows = pick.choices(range(len(logits)), k=pick.choice((1, 1, 2, 6)))
    client.sample(logits[rows], temperature=temperature, seed=pick.getrandbits(32), **pick.choice(_CUTS))
    if pick.random() < 0.3:
        client.sample(logits[rows[:1]], temperature=0, compact=pick.choice((None, 1024)), seed=1)


def others(client, pick):
    """Attention of all lengths, a session, softmax, rows and requests that are wrong, a client that leaves."""
    q, k, v = np.random.default_rng(pick.getrandbits(32)).normal(size=(3, 1, 4, 2048, 32)).astype(np.float32)
    q *= 0.3  # scores that second order describes well
    length = pick.choice((64, 128, 512, 2048))
    asked = pick.choice(({}, {"mode": "moment", "policy": "best_effort"}, {"mode": "exact"}))
    client.attention(q[:, :, :length], k[:, :, :length], v[:, :, :length], causal=True, **asked)
    with client.attention_session(heads=4, dim=32) as session:
        session.append(k[0, :, :50], v[0, :, :50], q[0, :, :50])
        time.sleep(0.5)
    client.softmax(real.rows()[:1])
    client.sample(np.stack([np.full(100, -np.inf), np.arange(100.0)]))
    with contextlib.suppress(LogitdError):
        client.sample([[1.0, 2.0]], top_p=7)


def leaving(url):
    """Send half of a body and go."""
    place = urlsplit(url)
    head = "POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n"
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(head.encode() + bytes(2000))
        time.sleep(0.2)


@contextlib.contextmanager
def mixed_load(url):
    """Ask `url` for everything from five threads until the block ends."""
    ends, faults = threading.Event(), []

    def asking(work, seed):
        pick = random.Random(seed)
        with Client(url, headers={"traceparent": f"00-{seed + 1:032x}-{seed + 1:016x}-01"}) as client:
            while not ends.wait(0.02):
                work(client, pick)

    def going():
        while not ends.wait(1):
            leaving(url)
            httpx.get(f"{url}/nowhere")

    def kept(work, *arguments):
        try:
            work(*arguments)
        except Exception as error:
            faults.append(error)

    real.rows()
    works = [(asking, work, seed) for seed, work in enumerate(itertools.chain([sampling] * 3, [others]))]
    threads = [threading.Thread(target=kept, args=work) for work in [*works, (going,)]]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert faults == []
