"""The load generator against servers that misbehave: an open loop, and how requests end."""

import asyncio
import io
import time
from contextlib import asynccontextmanager, suppress

import numpy as np
import pytest
from loadtest.http.profiles.connection import Pool
from loadtest.http.profiles.generate import Generator
from loadtest.http.profiles.kinds import Kind, single
from loadtest.http.profiles.record import LEFT, NO_ANSWER, TOO_LATE, Record, Verdict
from loadtest.http.profiles.requests import Wire
from loadtest.http.profiles.schedule import Phase
from loadtest.http.profiles.target import Target
from loadtest.http.profiles.terminal import Progress

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REQUEST = Wire().get("/")
_ROUNDING = 1e-6  # latencies are float32


@asynccontextmanager
async def serving(answer):
    """The place of a server that hands every request to `answer(writer)`."""
    writers = []

    async def serve(reader, writer):
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                await answer(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Target.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@asynccontextmanager
async def asking(answer, record, connections=64, timeout_seconds=20.0, **of_kind):
    """A generator that asks such a server."""
    async with serving(answer) as target:
        pool = Pool(target, connections)
        yield Generator(pool, [single("get", [REQUEST], **of_kind)], [0], record, timeout_seconds)
        pool.close()


def test_a_server_that_falls_silent_is_asked_on_and_its_silence_is_counted_from_when_each_was_due():
    record = Record(["get"])

    async def scenario():
        asked, speaking = 0, asyncio.Event()

        async def answer(writer):
            nonlocal asked
            asked += 1
            await speaking.wait()
            writer.write(ANSWER)

        async with asking(answer, record) as one:
            await one.phase(Phase("silence", 0.2, 100.0))
            while asked < 20:
                await asyncio.sleep(0.001)
            assert len(record) == 0
            speaking.set()
            await one.drained()

    asyncio.run(scenario())
    found = record.columns()
    latency = found.latency[np.argsort(found.due)]
    assert len(found) == 20
    assert np.all(np.diff(latency) < 0)  # who was due later waited less for the same moment
    assert latency[0] >= 0.19


def test_waiting_for_a_connection_is_latency_too():
    record, answered = Record(["get"]), []

    async def scenario():
        async def answer(writer):
            await asyncio.sleep(0.01)
            answered.append(time.perf_counter() - one.began)
            writer.write(ANSWER)

        async with asking(answer, record, connections=1) as one:
            await one.phase(Phase("one lane", 0.01, 500.0))
            await one.drained()

    asyncio.run(scenario())
    found, answered = record.columns(), np.array(answered)
    assert np.all(np.diff(found.due) > 0)  # in the order in which they asked
    assert len(found) == 5
    assert np.all(found.due + found.latency >= answered - _ROUNDING)
    assert np.all(found.due[1:] + found.lag[1:] >= answered[:-1] - _ROUNDING)


def test_within_a_conversation_a_request_is_due_when_the_answer_before_it_is_there():
    record = Record(["talk"])

    async def talk(ask):
        for _ in range(3):
            await ask(REQUEST)

    async def scenario():
        async def answer(writer):
            await asyncio.sleep(0.01)
            writer.write(ANSWER)

        async with serving(answer) as target:
            pool = Pool(target, 1)
            one = Generator(pool, [Kind("talk", talk)], [0], record, 20.0)
            await one.phase(Phase("once", 0.01, 100.0))
            await one.drained()
            pool.close()

    asyncio.run(scenario())
    found = record.columns()
    assert found.due[1:] == pytest.approx((found.due + found.latency)[:-1], abs=_ROUNDING)


@pytest.mark.parametrize(
    ("answer", "of_kind", "code"),
    [
        (None, {"leave_seconds": 0.01, "expected": frozenset({LEFT})}, LEFT),
        (None, {}, TOO_LATE),
        (b"", {}, NO_ANSWER),
    ],
)
def test_how_a_request_can_end_without_an_answer(answer, of_kind, code):
    record = Record(["get"])

    async def scenario():
        async def respond(writer):
            if answer is not None:
                writer.write(answer)
                writer.close()

        async with asking(respond, record, timeout_seconds=0.05, **of_kind) as one:
            await one.phase(Phase("once", 0.01, 100.0))
            await one.drained()

    asyncio.run(scenario())
    found = record.columns()
    assert found.code.tolist() == [code]
    assert found.verdict.tolist() == [Verdict.EXPECTED if code == LEFT else Verdict.ERROR]


def test_a_connection_that_the_server_closes_is_not_used_again():
    record = Record(["get"])

    async def scenario():
        async def answer(writer):
            writer.write(ANSWER.replace(b"content-length", b"connection: close\r\ncontent-length"))
            writer.close()

        async with asking(answer, record) as one:
            assert await one.closed_loop(1, 0.05) > 0

    asyncio.run(scenario())
    assert set(record.columns().code.tolist()) == {200}


def test_nobody_there_is_no_answer():
    record = Record(["get"])

    async def scenario():
        one = Generator(Pool(Target(("127.0.0.1", 1)), 8), [single("get", [REQUEST])], [0], record, 1.0)
        await one.phase(Phase("once", 0.01, 100.0))
        await one.drained()

    asyncio.run(scenario())
    assert record.columns().code.tolist() == [NO_ANSWER]


class Terminal(io.StringIO):
    """A stream that says it is looked at."""

    def isatty(self):
        return True


def test_progress_is_one_line_for_who_looks_and_nothing_for_a_file():
    record = Record(["get"])
    record.begin(Phase("steady", 10.0, 5.0), 0.0)
    record.add(0.0, 0.01, 0.0, 200, 0, 0, Verdict.EXPECTED)
    shown, kept = Terminal(), io.StringIO()
    one = Generator(Pool(Target(("127.0.0.1", 1)), 8), [single("get", [REQUEST])], [0], record, 1.0)
    for stream in (shown, kept):
        progress = Progress(10.0, stream)
        progress(Phase("steady", 10.0, 5.0), one, record)
        progress.close()
    assert "steady: 5/s due, 2/s answered, p99 10.0 ms" in shown.getvalue()
    assert "\n" not in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[K")
    assert kept.getvalue() == ""
