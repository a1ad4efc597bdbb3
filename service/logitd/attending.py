"""Attention requests: admitted by number, computed on threads of their own, so that sampling never waits behind one."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from logitd.engine import Stages, run_on
from logitd.errors import Unavailable
from logitd.metrics import Metrics
from logitd.settings import Settings
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
        self._pool = ThreadPoolExecutor(settings.attention_threads, thread_name_prefix="logitd-attention")
        self._inside = 0

    def start(self) -> None:
        """Measure up to how many keys exact attention is the faster one, unless that is set."""
        if self._settings.attention_threshold is None:
            self.threshold = measured_threshold()

    def stop(self) -> None:
        """Finish what runs and end the pool."""
        self._pool.shutdown(wait=True)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count a request in before its body is read. Call it on the event loop.

        Raises:
            Unavailable: as many as `attention_queue` are in the house.
        """
        if self._inside >= self._settings.attention_queue:
            raise Unavailable(f"{self._inside} attention requests are waiting or running; try again")
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def run(self, work: Callable[[Stages], T], stages: Stages) -> T:
        """Run one request's work on the pool."""
        return await run_on(self._pool, work, stages, self._metrics)

    def attend(self, call: Call, wish: Wish) -> Answer:
        """Attend and count what became of each head."""
        answer = attend(call, wish)
        reports = [report for row in answer.heads for report in row]
        self._metrics.attended(
            Counter((report.mode, report.why) for report in reports),
            call.keys,
            [report.relative_error for report in reports],
        )
        return answer
