"""What the rest of the service tells of itself, and by which series that is counted."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus

from prometheus_client import CollectorRegistry

from logitd.counting import series
from logitd.counting.cells import Example, Labels, Threads, put
from logitd.counting.exposition import Exposition
from logitd.counting.heads import count_heads
from logitd.counting.rows import count_rows
from logitd.counting.series import Series
from logitd_kernels import RowFault, RowResult
from logitd_kernels.sampling.transform import Values

_REFUSED = {400: "invalid", 415: "invalid", 422: "invalid", 401: "auth", 403: "auth", 409: "session", 410: "session"}
_INLINE = "inline"
_LATENCY, _BYTES, _SIZE = series.STAGE.bounds, series.REQUEST_BYTES.bounds, series.BATCH_ROWS.bounds

Number = Callable[[], float]


class Metrics:
    """The service's series. Any thread may record.

    Args:
        registry: where they are registered; a fresh one each app, so that tests never share counts.
        endpoints: the route templates that may be labels.
    """

    def __init__(self, registry: CollectorRegistry, endpoints: Iterable[str]) -> None:
        self.registry = registry
        self._endpoints = frozenset(endpoints)
        self._threads = Threads()
        self._gauges: dict[Series, dict[Labels, Number]] = {}
        self._started, self._loop_tasks = time.time(), 0
        self._gauge(series.INFLIGHT, lambda: sum(cells.inflight for cells in self._threads.all))
        self._gauge(series.LOOP_TASKS, lambda: self._loop_tasks)
        self._gauge(series.LAST_BATCH, self._last_batch)
        registry.register(Exposition(self._threads, self._gauges))

    def _gauge(self, of: Series, value: Number, *labels: str) -> None:
        self._gauges.setdefault(of, {})[labels] = value

    def _last_batch(self) -> float:
        return max([self._started, *(cells.last_batch_seconds for cells in self._threads.all)])

    def started(self, version: str, backend: str, configuration: str) -> None:
        """Say what is running; `configuration` is a hash of the settings."""
        self._gauge(series.BUILD, lambda: 1, version, backend)
        self._gauge(series.CONFIG, lambda: 1, configuration)

    def readiness(self, ready: Number) -> None:
        """Tell whether new work is welcome, whenever somebody asks."""
        self._gauge(series.READY, ready)

    def engine(self, up: Number) -> None:
        """Tell whether the engine computes, whenever somebody asks."""
        self._gauge(series.ENGINE_UP, up)

    def device(self, used_bytes: Number, total_bytes: Number) -> None:
        """Tell how much memory there is where rows are computed, whenever somebody asks."""
        self._gauge(series.DEVICE_MEMORY, used_bytes, "used")
        self._gauge(series.DEVICE_MEMORY, total_bytes, "total")

    def queue(self, requests: Number, rows: Number, held_bytes: Number, oldest_seconds: Number) -> None:
        """Tell what waits to be computed, whenever somebody asks."""
        self._gauge(series.QUEUE_REQUESTS, requests)
        self._gauge(series.QUEUE_ROWS, rows)
        self._gauge(series.QUEUE_BYTES, held_bytes)
        self._gauge(series.QUEUE_OLDEST, oldest_seconds)

    def admission(self, requests: Number, held_bytes: Number) -> None:
        """Tell how many bodies are in the house and how large they are, whenever somebody asks."""
        self._gauge(series.ADMITTED, requests)
        self._gauge(series.ADMITTED_BYTES, held_bytes)

    def sessions(self, count: Number, held_bytes: Number) -> None:
        """Tell how many sessions are open and what they keep, whenever somebody asks."""
        self._gauge(series.SESSIONS, count)
        self._gauge(series.SESSION_BYTES, held_bytes)

    def shared_memory(self, regions: Number, held_bytes: Number) -> None:
        """Tell how many regions of shared memory are registered and how large they are, whenever somebody asks."""
        self._gauge(series.SHARED_REGIONS, regions)
        self._gauge(series.SHARED_BYTES, held_bytes)

    def attention(self, requests: Number) -> None:
        """Tell how many attention requests are in the house, whenever somebody asks."""
        self._gauge(series.ATTENTION_INFLIGHT, requests)

    def request_began(self) -> None:
        """Count a request in."""
        self._threads.mine.inflight += 1

    def request_ended(self, path: str, status: int, seconds: float, trace_id: str | None = None) -> None:
        """Count a request out, on the thread that counted it in; unknown paths share one label."""
        cells = self._threads.mine
        cells.inflight -= 1
        endpoint = path if path in self._endpoints else series.UNMATCHED
        cells.counts[series.REQUESTS][endpoint, str(status)] += 1
        labels = (endpoint,)
        bucket = put(cells.histograms[series.DURATION][labels], _LATENCY, seconds)
        if trace_id is not None:
            cells.examples[series.DURATION, labels, bucket] = Example(trace_id, seconds, time.time())
        if status in _REFUSED:
            cells.count(series.REJECTED, _REFUSED[status])

    def unread(self, status: int) -> None:
        """Count what was refused before it was a request: headers too slow or too large, or no HTTP."""
        cells = self._threads.mine
        cells.counts[series.REQUESTS][series.UNMATCHED, str(status)] += 1
        cells.count(series.REJECTED, "slow_body" if status == HTTPStatus.REQUEST_TIMEOUT else "invalid")

    def stages(self, seconds: Mapping[str, float]) -> None:
        """Record the stages that a request has been through: 0 is one that it has not."""
        stages = self._threads.mine.histograms[series.STAGE]
        for stage, value in seconds.items():
            if value:
                put(stages[stage,], _LATENCY, value)

    def answered(self, body_bytes: int, answer_bytes: int, write_seconds: float) -> None:
        """Record how large a request and its answer were, and how long writing that took."""
        histograms = self._threads.mine.histograms
        put(histograms[series.REQUEST_BYTES][()], _BYTES, float(body_bytes))
        put(histograms[series.RESPONSE_BYTES][()], _BYTES, float(answer_bytes))
        put(histograms[series.STAGE]["write",], _LATENCY, write_seconds)

    def batch(self, op: str, rows: int, requests: int, release: str = _INLINE, fill: float = 0.0) -> None:
        """Record what is computed in one go.

        Args:
            op: one of OPS.
            rows, requests: how many.
            release: what ended it, one of RELEASES.
            fill: share of its budget; of work that was queued.
        """
        cells = self._threads.mine
        labels, histograms = (op,), cells.histograms
        cells.counts[series.BATCHES][op, release] += 1
        put(histograms[series.BATCH_ROWS][labels], _SIZE, float(rows))
        put(histograms[series.BATCH_REQUESTS][labels], _SIZE, float(requests))
        if release != _INLINE:  # light work goes on while the compute threads hang
            cells.last_batch_seconds = time.time()
            cells.observe(series.FILL, fill)

    def sampled(self, answers: Sequence[RowResult | RowFault], values: Sequence[Values]) -> None:
        """Record what came of rows that were sampled with the given parameters."""
        count_rows(self._threads.mine, answers, values)

    def rejected(self, reason: str) -> None:
        """Count a request that was turned away; `reason` is one of REJECTIONS."""
        self._threads.mine.count(series.REJECTED, reason)

    def cancelled(self, stage: str) -> None:
        """Count a request whose client left; `stage` is one of CANCELLED_STAGES."""
        self._threads.mine.count(series.CANCELLED, stage)

    def session_event(self, event: str) -> None:
        """Count what became of a session; `event` is one of SESSION_EVENTS."""
        self._threads.mine.count(series.SESSION_EVENT, event)

    def shared_memory_error(self, reason: str) -> None:
        """Count a refused use of shared memory; `reason` is one of SHARED_MEMORY_ERRORS."""
        self._threads.mine.count(series.SHARED_ERRORS, reason)

    def loop_tasks(self, count: int) -> None:
        """Record how many tasks the event loop has."""
        self._loop_tasks = count

    def loop_lag(self, seconds: float) -> None:
        """Record how late the event loop was once."""
        self._threads.mine.observe(series.LAG, seconds)

    def self_test(self, outcome: str) -> None:
        """Count a self-test, `passed` or `failed`."""
        self._threads.mine.count(series.SELF_TESTS, outcome)

    def attended(self, heads: Sequence[tuple[str, str, float]], keys: int) -> None:
        """Record one attention call: mode, why and measured error of each head, and how many keys there were."""
        count_heads(self._threads.mine, heads, keys)
