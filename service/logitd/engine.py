"""The engine: runs requests on a pool of compute threads, off the event loop, and records what they were."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

import torch

from logitd.metrics import STAGES, Metrics
from logitd.settings import Settings
from logitd_kernels import DenseRows, HeadRows, RowFault, RowResult, check, pick, sample, set_threads, softmax
from logitd_kernels.sampling.transform import Values
from logitd_kernels.softmax import SoftmaxRows
from logitd_kernels.stopwatch import Stopwatch

T = TypeVar("T")


class Stages(Stopwatch):
    """Where a request spends its time; `read_seconds` have gone into receiving its body."""

    def __init__(self, read_seconds: float = 0.0) -> None:
        super().__init__(STAGES)
        self.seconds["read"] = read_seconds


async def run_on(pool: Executor, work: Callable[[Stages], T], stages: Stages, metrics: Metrics) -> T:
    """Run one request's work on a pool and record its stages; time spent waiting for a thread is its `queue` stage."""
    submitted = time.perf_counter()

    def timed() -> T:
        stages.seconds["queue"] = time.perf_counter() - submitted
        return work(stages)

    try:
        return await asyncio.get_running_loop().run_in_executor(pool, timed)
    finally:
        metrics.stages(stages.seconds)


class Engine:
    """Computes requests; knows neither HTTP nor wire formats.

    Args:
        settings: backend and number of compute threads.
        metrics: where rows, tokens, entropies and stages are recorded.
    Raises:
        BackendUnavailable: an explicitly named backend cannot run here.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.backend = pick(settings.backend)
        self._metrics = metrics
        self._threads = settings.compute_threads
        self._pool = ThreadPoolExecutor(settings.compute_threads, thread_name_prefix="logitd-compute")
        self.ready = False

    def start(self) -> None:
        """Warm up, then report ready. Parallelism is over rows and requests, so torch itself gets one thread."""
        torch.set_num_threads(1)
        set_threads(self._threads)
        sample(DenseRows(torch.arange(8.0).reshape(1, 8)), check({"seed": 0, "top_p": 0.5}), backend=self.backend)
        self.ready = True

    def stop(self) -> None:
        """Finish what runs and end the pool."""
        self.ready = False
        self._pool.shutdown(wait=True)

    async def run(self, work: Callable[[Stages], T], stages: Stages) -> T:
        """Run one request's work on the pool; time spent waiting for a thread is its `queue` stage."""
        return await run_on(self._pool, work, stages, self._metrics)

    def sample(
        self,
        rows: DenseRows | HeadRows,
        values: Sequence[Values],
        *,
        logprobs: int = 0,
        logprobs_mode: str = "raw",
        trace: bool = False,
    ) -> list[RowResult | RowFault]:
        """Sample every row on this engine's backend and count what came of it."""
        answers = sample(
            rows, values, backend=self.backend, logprobs=logprobs, logprobs_mode=logprobs_mode, trace=trace
        )
        drawn = [answer for answer in answers if isinstance(answer, RowResult)]
        kinds = Counter(answer.kind if isinstance(answer, RowFault) else "ok" for answer in answers)
        self._metrics.sampled(
            self.backend.name,
            sum(len(answer.tokens) for answer in drawn),
            kinds,
            [answer.entropy for answer in drawn],
            [answer.entropy_kept for answer in drawn],
        )
        return answers

    def softmax(self, rows: DenseRows, temperatures: list[float], kind: str) -> SoftmaxRows:
        """Compute the distributions of every row."""
        return softmax(rows, temperatures, kind, self.backend)
