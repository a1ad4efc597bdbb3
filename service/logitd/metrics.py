"""Every series the service exposes, declared once on a registry. Only the engine and the ASGI layer record."""

from collections.abc import Callable, Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from logitd.batch_histogram import BatchHistogram

_LATENCY_SECONDS = [digit * 10.0**power for power in range(-4, 1) for digit in (1, 2, 5)] + [10.0]
_ENTROPY_NATS = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12]

_RELATIVE_ERROR = [1e-6, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]

STAGES = ("read", "decode", "queue", "compute", "encode")
REJECTIONS = ("requests", "bytes", "wait", "rows", "deadline", "slow_body", "too_large", "unavailable")
CANCELLED_STAGES = ("reading", "queued", "computing")
_POWERS = [2**power for power in range(13)]
ROW_KINDS = ("ok", "nan", "posinf", "all_neginf", "head_too_short")


class Metrics:
    """The service's series.

    Args:
        registry: where they are registered; a fresh one each app, so that tests never share counts.
        endpoints: the route templates that may be labels.
    """

    def __init__(self, registry: CollectorRegistry, endpoints: Iterable[str]) -> None:
        self.registry = registry
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a start time for each series doubles the exposition
        self._endpoints = frozenset(endpoints)
        self._requests = Counter(
            "logitd_requests_total",
            "Requests by endpoint and status; 499 is a client that left.",
            ["endpoint", "code"],
            registry=registry,
        )
        self._duration = Histogram(
            "logitd_request_duration_seconds",
            "From the request's headers to the last byte of its answer.",
            ["endpoint"],
            buckets=_LATENCY_SECONDS,
            registry=registry,
        )
        self._stages = Histogram(
            "logitd_stage_duration_seconds",
            "Where a request spends its time.",
            ["stage"],
            buckets=_LATENCY_SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            "logitd_tokens_sampled_total", "Tokens drawn, by backend.", ["backend"], registry=registry
        )
        self._rows = Counter("logitd_rows_total", "Rows by what came of them.", ["kind"], registry=registry)
        self._inflight = Gauge("logitd_inflight_requests", "Requests being answered.", registry=registry)
        self._build = Gauge("logitd_build_info", "Always 1.", ["version", "backend"], registry=registry)
        self._lag = Histogram(
            "logitd_event_loop_lag_seconds",
            "By how much the event loop is late.",
            buckets=_LATENCY_SECONDS,
            registry=registry,
        )
        self._ready = Gauge("logitd_ready", "1 while new work is welcome.", registry=registry)
        self._self_tests = Counter(
            "logitd_self_tests_total", "Tests of failed kernels, by what they came to.", ["outcome"], registry=registry
        )
        self._entropy = BatchHistogram(
            "logitd_entropy_nats",
            "Entropy of each row after temperature, and after truncation.",
            "when",
            ("after_temperature", "after_truncation"),
            _ENTROPY_NATS,
        )
        registry.register(self._entropy)
        self._heads = Counter(
            "logitd_attention_heads_total",
            "Attention heads by how they were computed, and why.",
            ["mode", "why"],
            registry=registry,
        )
        self._keys = Histogram(
            "logitd_attention_keys",
            "Keys of attention requests.",
            buckets=[2**power for power in range(6, 18)],
            registry=registry,
        )
        self._sessions = Gauge("logitd_attention_sessions", "Open streaming sessions.", registry=registry)
        self._session_bytes = Gauge(
            "logitd_attention_session_bytes", "What streaming sessions keep.", registry=registry
        )
        self._error = Histogram(
            "logitd_attention_relative_error",
            "Measured error of each attention head that was answered.",
            buckets=_RELATIVE_ERROR,
            registry=registry,
        )
        self._loop_tasks = Gauge("logitd_event_loop_tasks", "Tasks of the event loop.", registry=registry)
        self._rejected = Counter(
            "logitd_requests_rejected_total", "Requests turned away, by why.", ["reason"], registry=registry
        )
        self._cancelled = Counter(
            "logitd_cancelled_total",
            "Requests whose client left, by what was being done.",
            ["stage"],
            registry=registry,
        )
        self._batch_rows = Histogram(
            "logitd_batch_rows", "Rows computed in one go.", buckets=_POWERS, registry=registry
        )
        self._batch_requests = Histogram(
            "logitd_batch_requests",
            "Requests computed in one go, in whole or in part.",
            buckets=_POWERS,
            registry=registry,
        )
        # Looking a series up by its labels costs more than counting.
        self._request_of, self._duration_of = cache(self._requests.labels), cache(self._duration.labels)
        self._stage_of, self._rows_of = cache(self._stages.labels), cache(self._rows.labels)
        self._tokens_of = cache(self._tokens.labels)
        for reason in REJECTIONS:
            self._rejected.labels(reason)
        for stage in CANCELLED_STAGES:
            self._cancelled.labels(stage)
        for stage in STAGES:
            self._stages.labels(stage)
        for kind in ROW_KINDS:
            self._rows.labels(kind)
        for outcome in ("passed", "failed"):
            self._self_tests.labels(outcome)

    def started(self, version: str, backend: str) -> None:
        """Say what is running."""
        self._build.labels(version, backend).set(1)
        self._tokens.labels(backend)

    def request_began(self) -> None:
        """Count a request in."""
        self._inflight.inc()

    def request_ended(self, path: str, status: int, seconds: float) -> None:
        """Count a request out; unknown paths share one label."""
        self._inflight.dec()
        endpoint = path if path in self._endpoints else "unmatched"
        self._request_of(endpoint, str(status)).inc()
        self._duration_of(endpoint).observe(seconds)

    def readiness(self, ready: Callable[[], bool]) -> None:
        """Tell whether new work is welcome, whenever somebody asks."""
        self._ready.set_function(ready)

    def loop_tasks(self, count: int) -> None:
        """Record how many tasks the event loop has."""
        self._loop_tasks.set(count)

    def loop_lag(self, seconds: float) -> None:
        """Record how late the event loop was once."""
        self._lag.observe(seconds)

    def self_test(self, outcome: str) -> None:
        """Count a self-test, `passed` or `failed`."""
        self._self_tests.labels(outcome).inc()

    def stages(self, seconds: dict[str, float]) -> None:
        """Record the stages of one request."""
        for stage, value in seconds.items():
            self._stage_of(stage).observe(value)

    def sampled(
        self,
        backend: str,
        tokens: int,
        kinds: dict[str, int],
        before: Iterable[float | None],
        after: Iterable[float | None],
    ) -> None:
        """Record one sampled batch: its tokens, its rows by kind, and the entropies of its rows."""
        self._tokens_of(backend).inc(tokens)
        for kind, count in kinds.items():
            self._rows_of(kind).inc(count)
        self._entropy.observe("after_temperature", before)
        self._entropy.observe("after_truncation", after)

    def batch(self, rows: int, requests: int) -> None:
        """Record what is computed in one go."""
        self._batch_rows.observe(rows)
        self._batch_requests.observe(requests)

    def rejected(self, reason: str) -> None:
        """Count a request that was turned away; `reason` is one of REJECTIONS."""
        self._rejected.labels(reason).inc()

    def cancelled(self, stage: str) -> None:
        """Count a request whose client left; `stage` is one of CANCELLED_STAGES."""
        self._cancelled.labels(stage).inc()

    def queue(
        self,
        requests: Callable[[], float],
        rows: Callable[[], float],
        held_bytes: Callable[[], float],
        oldest_seconds: Callable[[], float],
    ) -> None:
        """Tell what waits to be computed, whenever somebody asks."""
        for name, documentation, value in (
            ("requests", "Requests waiting to be computed.", requests),
            ("rows", "Rows waiting to be computed.", rows),
            ("bytes", "Bytes of rows waiting to be computed.", held_bytes),
            ("oldest_seconds", "How long the oldest of them has waited.", oldest_seconds),
        ):
            Gauge(f"logitd_queue_{name}", documentation, registry=self.registry).set_function(value)

    def admission(self, requests: Callable[[], float], held_bytes: Callable[[], float]) -> None:
        """Tell how many bodies are in the house and how large they are, whenever somebody asks."""
        Gauge("logitd_admitted_requests", "Requests with a body in the house.", registry=self.registry).set_function(
            requests
        )
        Gauge("logitd_inflight_bytes", "Bytes of request bodies in the house.", registry=self.registry).set_function(
            held_bytes
        )

    def sessions(self, count: Callable[[], float], held_bytes: Callable[[], float]) -> None:
        """Tell how many sessions are open and what they keep, whenever somebody asks."""
        self._sessions.set_function(count)
        self._session_bytes.set_function(held_bytes)

    def attention(self, requests: Callable[[], float]) -> None:
        """Tell how many attention requests are in the house, whenever somebody asks."""
        name, documentation = "logitd_attention_requests", "Attention requests waiting or being computed."
        Gauge(name, documentation, registry=self.registry).set_function(requests)

    def attended(self, heads: dict[tuple[str, str], int], keys: int, errors: Iterable[float]) -> None:
        """Record one attention request: its heads by mode and why, its length, and the error of each head."""
        for (mode, why), count in heads.items():
            self._heads.labels(mode, why).inc(count)
        self._keys.observe(keys)
        for error in errors:
            self._error.observe(error)
