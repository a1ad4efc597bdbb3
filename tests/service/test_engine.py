"""The engine: batches give the answers that each request would have alone, and one request harms no other."""

import asyncio
import copy
import threading
import time

import pytest
import torch
from prometheus_client import CollectorRegistry

from logitd.engine import Engine
from logitd.errors import Shed
from logitd.metrics import Metrics
from logitd.settings import Settings
from logitd.work import SampleWork
from logitd_kernels import DenseRows, check, sample
from logitd_kernels.errors import ParameterError


class Asked:
    """Work that says when it is computed, and waits for leave."""

    def __init__(self, log, name, key="k", rows=1, error=None, leave=None):
        self.log, self.name, self.key, self.rows, self.row_bytes = log, name, key, rows, 4
        self.error, self.leave, self.is_light, self.op, self.values = error, leave, False, "sample", ()
        self.begun = threading.Event()

    def part(self, start, stop):
        part = copy.copy(self)
        part.rows = stop - start
        return part

    def sampled(self, answers):
        return ()

    def compute(self, backend):
        self.log.append(self.name)
        self.begun.set()
        if self.leave is not None:
            assert self.leave.wait(10)
        if self.error is not None:
            raise self.error
        return [self.name] * self.rows


@pytest.fixture
def engine():
    registry = CollectorRegistry()
    engine = Engine(Settings(compute_threads=1, batch_rows=8, max_queue_rows=1000), Metrics(registry, []))
    engine.start()
    engine.registry = registry
    yield engine
    engine.stop()


def run(main):
    return asyncio.run(main())


async def blocked(engine, log):
    """Make the engine's only thread wait; return the work that it waits in."""
    work = Asked(log, "first", leave=threading.Event())
    ticket = engine.submit(work)
    await asyncio.to_thread(work.begun.wait, 10)
    return work, ticket


def dense(rows, seed, vocab=300, **params):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, vocab, generator=generator) * 3
    values = [check({"seed": seed, "step": row, "top_p": 0.9, **params}) for row in range(rows)]
    return SampleWork(DenseRows(logits), values, logprobs=2)  # log-probabilities are not light: it queues


def alone(engine, work):
    return sample(work.dense, work.values, backend=engine.backend, logprobs=work.logprobs)


def test_batches_and_parts_have_the_answers_of_single_requests(engine):
    works = [dense(1 + seed % 30, seed, vocab=200 + 100 * (seed % 2)) for seed in range(60)]

    async def main():
        log = []
        first, _ = await blocked(engine, log)
        tickets = [engine.submit(work) for work in works[:10]]
        first.leave.set()
        tickets += [engine.submit(work) for work in works[10:14]]
        return await asyncio.gather(*(ticket.future for ticket in tickets))

    for work, found in zip(works[:14], run(main), strict=True):
        assert list(found) == alone(engine, work)
    requests, batches = (
        engine.registry.get_sample_value(f"logitd_batch_requests_{what}", {"op": "sample"}) for what in ("sum", "count")
    )
    assert requests > batches


def test_faults_of_rows_name_their_place_in_the_request(engine):
    work = dense(30, 3)
    work.dense.logits[[0, 9, 29], 5] = torch.nan

    async def main():
        return await engine.submit(work).future

    answers = run(main)
    assert [answer.row for answer in answers if hasattr(answer, "code")] == [0, 9, 29]
    assert answers == alone(engine, work)


def test_a_parameter_that_a_row_shows_to_be_impossible_fails_its_request_alone(engine):
    good, bad = [dense(3, seed, vocab=50) for seed in (1, 2)], dense(12, 3, vocab=50)
    bad.values[10] = check({"banned_ids": [77]})

    async def main():
        first, _ = await blocked(engine, [])
        tickets = [engine.submit(work) for work in (good[0], bad, good[1])]
        first.leave.set()
        return await asyncio.gather(*(ticket.future for ticket in tickets), return_exceptions=True)

    before, error, after = run(main)
    assert [before, after] == [alone(engine, work) for work in good]
    assert isinstance(error, ParameterError)
    assert error.row == 10


def test_a_kernel_that_fails_on_one_of_fifty_fails_that_one(engine, monkeypatch):
    """A batch is halved until the guilty one is alone."""
    works = [dense(1, seed) for seed in range(50)]
    works[17].dense.logits[0, 0] = 1234.0

    def poisoned(rows, *args, **named):
        if (rows.logits == 1234.0).any():
            raise FloatingPointError("poison")
        return sample(rows, *args, **named)

    monkeypatch.setattr("logitd.work.sample", poisoned)

    async def main():
        first, _ = await blocked(engine, [])
        tickets = [engine.submit(work) for work in works]
        first.leave.set()
        return await asyncio.gather(*(ticket.future for ticket in tickets), return_exceptions=True)

    found = run(main)
    assert isinstance(found.pop(17), FloatingPointError)
    works.pop(17)
    assert found == [alone(engine, work) for work in works]


def test_cancelled_and_expired_work_is_never_computed(engine):
    log = []

    async def main():
        first, ticket = await blocked(engine, log)
        cancelled = engine.submit(Asked(log, "cancelled"))
        engine.submit(Asked(log, "late"), deadline=time.monotonic())
        kept = engine.submit(Asked(log, "kept"), deadline=time.monotonic() + 60)
        cancelled.future.cancel()
        first.leave.set()
        await asyncio.gather(ticket.future, kept.future)

    run(main)
    assert log == ["first", "kept"]


def test_what_is_left_of_a_request_that_was_given_up_is_not_computed(engine):
    log = []

    async def main():
        work = Asked(log, "large", rows=20, leave=threading.Event())
        ticket = engine.submit(work)
        await asyncio.to_thread(work.begun.wait, 10)
        ticket.future.cancel()
        await asyncio.sleep(0)
        work.leave.set()
        await engine.submit(Asked(log, "next")).future

    run(main)
    assert log == ["large", "next"]


def test_nothing_ends_a_compute_thread(engine):
    async def main():
        for error in (ValueError("a"), SystemExit(3), KeyboardInterrupt()):
            with pytest.raises((ValueError, RuntimeError)):
                await engine.submit(Asked([], "bad", error=error)).future
        return await engine.submit(Asked([], "good")).future

    assert run(main) == ["good"]
    while engine.busy_seconds():
        time.sleep(0.001)


def test_an_engine_that_fails_its_self_test_says_so(engine, monkeypatch):
    reasons = []
    engine.on_failure = reasons.append

    async def fail():
        with pytest.raises(ValueError, match="broken"):
            await engine.submit(Asked([], "bad", error=ValueError("broken"))).future
        await engine.submit(Asked([], "good")).future

    run(fail)
    assert reasons == []  # it still computes: the fault was the request's
    monkeypatch.setattr("logitd.engine.sample", lambda *args, **named: [None])
    run(fail)
    assert len(reasons) == 1
    assert "self-test" in reasons[0]


def test_a_full_queue_turns_work_away(engine):
    async def main():
        first, ticket = await blocked(engine, [])
        waiting = [engine.submit(Asked([], "x", rows=200)) for _ in range(5)]
        with pytest.raises(Shed):
            engine.submit(Asked([], "y"))
        first.leave.set()
        await asyncio.gather(ticket.future, *(one.future for one in waiting))
        return await engine.submit(Asked([], "y")).future

    assert run(main) == ["y"]


def test_stopping_finishes_what_is_queued():
    engine = Engine(Settings(compute_threads=2), Metrics(CollectorRegistry(), []))
    engine.start()
    log = []

    async def main():
        tickets = [engine.submit(Asked(log, number)) for number in range(40)]
        await asyncio.to_thread(engine.stop)
        return await asyncio.gather(*(ticket.future for ticket in tickets))

    assert run(main) == [[number] for number in range(40)]
    assert not engine.ready


def test_light_work_waits_for_nobody(engine):
    work = dense(1, 5)
    light = SampleWork(work.dense, work.values)

    async def main():
        first, ticket = await blocked(engine, [])
        answers = engine.at_once(light)
        first.leave.set()
        await ticket.future
        return answers

    assert light.is_light
    assert not work.is_light
    assert run(main) == sample(light.dense, light.values, backend=engine.backend)


def test_it_takes_work_at_once_when_idle(engine):
    async def main():
        work = Asked([], "a", leave=threading.Event())
        ticket = engine.submit(work)
        assert await asyncio.to_thread(work.begun.wait, 10)
        work.leave.set()
        await ticket.future

    run(main)
