"""The engine: threads that take batches of work as soon as they are free, and tell the event loop what came out."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from logitd.batching import Batch, Batcher, Item
from logitd.errors import Shed
from logitd.metrics import Metrics
from logitd.settings import Settings
from logitd.ticket import Ticket
from logitd.waiting import on_pool, yield_to_others, yielding
from logitd.work import Outcome, Work, outcomes_of
from logitd_kernels import DenseRows, RowFault, RowResult, check, pick, sample, set_threads
from logitd_kernels.errors import KernelError
from logitd_kernels.sampling.transform import Values

if TYPE_CHECKING:
    from logitd.tracing import Tracing  # needs an extra

_log = logging.getLogger("logitd.engine")

T = TypeVar("T")


class Engine:
    """Computes work; knows neither HTTP nor wire formats.

    A batch in which something fails is halved until the guilty work is alone: nobody else's answer is lost.

    Args:
        settings: backend, number of compute threads, budgets of a batch and of the queue.
        metrics: where rows, tokens, entropies and batches are recorded.
    Raises:
        BackendUnavailable: an explicitly named backend cannot run here.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.backend = pick(settings.backend)
        self.ready = False
        self.tracing: Tracing | None = None
        self.on_failure: Callable[[str], None] = lambda reason: None
        self._settings, self._metrics = settings, metrics
        self._batcher: Batcher[Ticket] = Batcher(settings.batch_rows, settings.batch_bytes)
        self._change = threading.Condition()
        self._stopping = False
        self._workers: list[threading.Thread] = []
        self._aside = ThreadPoolExecutor(
            settings.compute_threads, thread_name_prefix="logitd-aside", initializer=yield_to_others
        )
        self._running: dict[int, float] = {}  # since when each busy thread is at its batch, monotonic
        queue = self._batcher
        metrics.queue(lambda: len(queue), lambda: queue.rows, lambda: queue.bytes, self.oldest_seconds)

    def start(self) -> None:
        """Warm up, then report ready. Parallelism is over rows and batches, so torch itself gets one thread."""
        torch.set_num_threads(1)
        yielding(lambda: set_threads(self._settings.compute_threads))
        self.self_test()
        self._stopping = False
        for number in range(self._settings.compute_threads):
            worker = threading.Thread(target=self._work, name=f"logitd-compute-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)
        self.ready = True

    def stop(self) -> None:
        """Finish what is queued and end the threads."""
        self.ready = False
        with self._change:
            self._stopping = True
            self._change.notify_all()
        for worker in self._workers:
            worker.join()
        self._workers.clear()
        self._aside.shutdown(wait=True)

    def self_test(self) -> None:
        """Sample a row of which the answer is known.

        Raises:
            RuntimeError: another came out.
        """
        answers = sample(DenseRows(torch.arange(8.0)[None]), check({"temperature": 0.0}), backend=self.backend)
        if not (isinstance(answers[0], RowResult) and answers[0].tokens == [7]):
            raise RuntimeError("the greedy token of 0 … 7 is not 7")

    def submit(self, work: Work, deadline: float | None = None) -> Ticket:
        """Queue some work. Call it on the event loop.

        Args:
            work: at least one row.
            deadline: on time.monotonic; what was not begun by then is not computed.
        Returns:
            A ticket. Whoever does not want its answers any more cancels its future.
        Raises:
            Shed: the queue is full.
        """
        if self._batcher.rows + work.rows > self._settings.max_queue_rows and len(self._batcher):
            detail = f"{self._batcher.rows} rows are waiting to be computed"
            raise Shed(detail, self.retry_after_seconds(), "rows_budget")
        ticket = Ticket(work, asyncio.get_running_loop().create_future())
        if self.tracing is not None:
            ticket.trace = self.tracing.current()
        item = Item(ticket, work.key, work.rows, work.row_bytes, time.monotonic(), deadline)
        ticket.future.add_done_callback(lambda _: self._drop(item))
        with self._change:
            self._batcher.add(item)
            self._change.notify()
        return ticket

    def at_once(self, work: Work) -> Sequence[Any]:
        """Compute light work where it is called: it neither waits for others, nor for two switches of threads.

        Returns:
            Its answers.
        Raises:
            Exception: whatever became of it.
        """
        (outcome,) = self._computed([work])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def aside(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run what would hold the event loop but is not for the queue; cancelled before its turn it is never run."""
        return on_pool(self._aside, work)

    def busy_seconds(self) -> float:
        """Return for how long the longest running batch has been computed; 0 where none is."""
        begun = list(self._running.values())
        return time.monotonic() - min(begun) if begun else 0.0

    def oldest_seconds(self) -> float:
        """Return how long the oldest work has waited of which nothing was computed yet; 0 where none does."""
        with self._change:
            oldest = self._batcher.oldest()
        return 0.0 if oldest is None else time.monotonic() - oldest

    def retry_after_seconds(self) -> int:
        """Return when there should be room: what comes last now waits about as long as what was first has."""
        return max(1, math.ceil(self.oldest_seconds()))

    def _drop(self, item: Item[Ticket]) -> None:
        """Take out what is left of work whose answer nobody waits for any more."""
        if item.left:
            with self._change:
                self._batcher.remove(item)

    def _work(self) -> None:
        yield_to_others()
        self._serve()

    def _serve(self) -> None:
        """Compute batches until the engine stops. Nothing that a batch does ends the thread."""
        while (batch := self._next()) is not None:
            me = threading.get_ident()
            self._running[me] = time.monotonic()
            try:
                self._run(batch)
            except BaseException as error:  # not even SystemExit out of a kernel
                _log.critical("a batch was lost", exc_info=error)
                self._tell(batch, [RuntimeError("the batch was lost")] * len(batch.parts), time.perf_counter())
            finally:
                del self._running[me]

    def _next(self) -> Batch[Ticket] | None:
        """Wait for work; None when the engine stops and nothing is left."""
        with self._change:
            while True:
                batch = self._batcher.take(time.monotonic())
                if batch.parts or batch.expired:
                    return batch
                if self._stopping:
                    return None
                self._change.wait()

    def _run(self, batch: Batch[Ticket]) -> None:
        # A future may be done whose callback has not run yet.
        batch = replace(batch, parts=[part for part in batch.parts if not part.item.work.future.done()])
        if not batch.parts:
            return
        began = time.perf_counter()
        self._tell(batch, self._batch(batch), began)

    def _batch(self, batch: Batch[Ticket]) -> list[Outcome]:
        """Compute parts."""
        for part in batch.parts:
            part.item.work.is_begun = True
        works = [part.item.work.work.part(part.start, part.stop) for part in batch.parts]
        members = [part.item.work.trace for part in batch.parts] if self.tracing is not None else ()
        return self._computed(works, batch.release, batch.fill, members)

    def _computed(
        self, works: Sequence[Work], release: str = "inline", fill: float = 0.0, members: Sequence[Any] = ()
    ) -> list[Outcome]:
        """Compute works, record what they were, and see to errors that are nobody's fault."""
        op, rows = works[0].op, sum(work.rows for work in works)
        self._metrics.batch(op, rows, len(works), release, fill)
        if self.tracing is None:
            outcomes = outcomes_of(works, self.backend)
        else:
            told = {"op": op, "rows": rows, "requests": len(works), "release": release, "backend": self.backend.name}
            with self.tracing.batch(told, members):
                outcomes = outcomes_of(works, self.backend)
        self._count(works, outcomes)
        if any(isinstance(outcome, Exception) and not isinstance(outcome, KernelError) for outcome in outcomes):
            self._suspect()
        return outcomes

    def _tell(self, batch: Batch[Ticket], outcomes: Sequence[Outcome], began: float) -> None:
        """Deliver on the loop of whoever asked; a loop that has ended wants nothing any more."""
        ended = time.perf_counter()

        def deliver() -> None:
            for part, outcome in zip(batch.parts, outcomes, strict=True):
                part.item.work.settle(part.start, outcome, began, ended)

        loops = {part.item.work.future.get_loop() for part in batch.parts}
        for loop in loops:
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver)

    def _count(self, works: Sequence[Work], outcomes: Sequence[Outcome]) -> None:
        """Record what came of the rows of a batch that was sampled."""
        answers: list[RowResult | RowFault] = []
        values: list[Values] = []
        for work, outcome in zip(works, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                answers += work.sampled(outcome)
                values += work.values
        if answers:
            self._metrics.sampled(answers, values)

    def _suspect(self) -> None:
        """After an error that is nobody's fault, see whether the engine still computes at all."""
        try:
            self.self_test()
        except Exception as error:
            _log.critical("the engine fails its self-test", exc_info=error)
            self.on_failure(f"the engine fails its self-test: {error}")
