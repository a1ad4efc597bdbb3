"""What a load profile sends and reads, and where."""

import asyncio
import math
import time

import pytest
from loadtest.http.profiles.connection import Connection
from loadtest.http.profiles.requests import Wire
from loadtest.http.profiles.target import Target
from loadtest.http.profiles.watch import Watcher


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://10.0.0.5:8000", Target(("10.0.0.5", 8000))),
        ("http://logitd", Target(("logitd", 80))),
        ("https://logitd", Target(("logitd", 443), tls=True)),
        ("unix:///run/logitd.sock", Target("/run/logitd.sock")),
    ],
)
def test_a_server_is_where_its_url_says(url, target):
    assert Target.of(url) == target


@pytest.mark.parametrize("url", ["10.0.0.5:8000", "ftp://logitd", "http://", "unix://"])
def test_what_is_no_url_is_refused_in_its_own_words(url):
    with pytest.raises(ValueError, match=url):
        Target.of(url)


def test_a_probe_that_nobody_answers_took_for_ever():
    watcher = Watcher(("127.0.0.1", 1), time.perf_counter(), 1.0)
    watcher.start()
    while not watcher.seen.probe_seconds:
        time.sleep(0.001)
    assert set(watcher.stop().probe_seconds) == {math.inf}


def test_a_key_goes_with_every_request():
    wire = Wire("of a test")
    for sent in (wire.get("/"), wire.post("/", {}), wire.infer("sample", [], b"data", parameters={})):
        assert sent.partition(b"\r\n\r\n")[0].count(b"x-api-key: of a test") == 1


class Sink:
    """A transport that takes what is written."""

    def is_closing(self):
        return False

    def write(self, data):
        pass


def test_a_chunked_answer_ends_with_its_last_chunk_and_not_with_a_line_that_looks_like_it():
    async def scenario():
        one = Connection()
        one.connection_made(Sink())
        waiter = one.ask(Wire().get("/"))
        one.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n2.0\r\n\r\n")
        assert not waiter.done()
        one.data_received(b"0\r\n\r\n")
        return waiter.result()

    answer = asyncio.run(scenario())
    assert (answer.status, answer.body) == (200, b"5\r\n2.0\r\n\r\n0\r\n\r\n")
