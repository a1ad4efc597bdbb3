"""Attention requests: admitted by number, computed on threads of their own, so that sampling never waits behind one."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from logitd.errors import Unavailable
from logitd.metrics import Metrics
from logitd.settings import Settings
from logitd.waiting import yield_to_others
from logitd_kernels.attention import Answer, Call, Wish, attend, measured_threshold

T = TypeVar("T")


class Attending:
    """Computes attention; knows neither HTTP nor wire formats.

    Args:
        settings: threads, queue and threshold.
        metrics: where choices, lengths and errors are recorded.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.threshold = settings.attention_threshold or 0
        self._settings = settings
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(
            settings.attention_threads, thread_name_prefix="logitd-attention", initializer=yield_to_others
        )
        self._inside = 0
        self._counting = threading.Lock()
        metrics.attention(lambda: self._inside)

    def start(self) -> None:
        """Measure up to how many keys exact attention is the faster one, unless that is set."""
        if self._settings.attention_threshold is None:
            self.threshold = measured_threshold()

    def stop(self) -> None:
        """Finish what runs and end the pool."""
        self._pool.shutdown(wait=True)

    def check_room(self) -> None:
        """Refuse who could not be taken in now.

        Raises:
            Unavailable: as many as `attention_queue` are in the house.
        """
        if self._inside >= self._settings.attention_queue:
            raise Unavailable(f"{self._inside} attention requests are waiting or running; try again")

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run something on the pool; cancelled before its turn it is never run.

        Its place is taken until then, or until it ends: what was begun goes on although nobody waits for it.

        Raises:
            Unavailable: as many as `attention_queue` are in the house.
        """
        with self._counting:
            self.check_room()
            self._inside += 1
        running = self._pool.submit(work)
        running.add_done_callback(self._leave)
        return asyncio.wrap_future(running)

    def _leave(self, _: "Future[T]") -> None:
        with self._counting:
            self._inside -= 1

    def attend(self, call: Call, wish: Wish) -> Answer:
        """Attend and count what became of each head."""
        answer = attend(call, wish)
        self._metrics.attended(
            [(report.mode, report.why, report.relative_error) for row in answer.heads for report in row], call.keys
        )
        return answer
