"""Every series there is: what `Metrics` records, `/metrics` exposes and `docs/metrics.md` lists.

Naming follows Prometheus: base units, counters end in `_total`, and the sum over any label means something. Every set
of label values is closed: no request can add a series.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from logitd_kernels import TRANSFORMS
from logitd_kernels.attention import MODES
from logitd_kernels.attention.choice import WHYS
from logitd_kernels.sampling.transform import TRUNCATING

STAGES = ("read", "decode", "queue", "compute", "encode")
REJECTIONS = (
    "queue_full",
    "bytes_budget",
    "rows_budget",
    "wait",
    "unavailable",
    "draining",
    "deadline",
    "slow_body",
    "body_too_large",
    "invalid",
    "auth",
    "session",
)
CANCELLED_STAGES = ("reading", "queued", "computing", "writing")
ROW_KINDS = ("ok", "nan", "posinf", "all_neginf", "head_too_short")
OPS = ("sample", "sample_head", "softmax", "score", "verify", "analyze")
RELEASES = ("inline", "idle", "full", "shape_change")
CUTS = tuple(transform for transform in TRANSFORMS if isinstance(transform, TRUNCATING))
METHODS = ("greedy", "untruncated", *(cut.name for cut in CUTS), "combined")
ALGORITHMS = ("exact", "linear", "mixed")
REASONS = ("threshold", "forced", "fallback")
SESSION_EVENTS = ("create", "import", "export", "hit", "miss", "expire", "delete")
SHARED_MEMORY_ERRORS = ("malformed", "not_found", "disabled", "too_large")
WHEN = ("after_temperature", "after_truncation")
UNMATCHED = "unmatched"  # of all paths that are no route

_RUN_MODES = tuple(mode for mode in MODES if mode not in ("auto", "linear"))

_LATENCY_SECONDS = (*(digit * 10.0**power for power in range(-4, 1) for digit in (1, 2, 5)), 10.0)
_ENTROPY_NATS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12)
_SUPPORT_TOKENS = tuple(2**power for power in range(23))
_MASS_RATIO = (0.001, 0.01, 0.05, *(tenths / 10 for tenths in range(1, 10)), 0.95, 0.99, 1)
_RELATIVE_ERROR = (*(float(f"{digit}e{power}") for power in range(-6, 0) for digit in (1, 3)), 1)
_BATCH_SIZE = tuple(2**power for power in range(13))
_FILL_RATIO = tuple(tenths / 10 for tenths in range(1, 11))
_BODY_BYTES = tuple(4**power for power in range(4, 15))
_SEQUENCE_LENGTH = tuple(2**power for power in range(6, 18))


class Kind(Enum):
    """What a series is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, eq=False)
class Series:
    """One family of series.

    Attributes:
        name: with its unit.
        kind: of it.
        documentation: one sentence.
        labels: their values; an empty set is known when the service starts: its routes, its version, status codes.
        bounds: of a histogram's buckets, ascending; +Inf is added.
        is_shown_at_zero: whether each of its label values is there before anything was counted.
    """

    name: str
    kind: Kind
    documentation: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()
    is_shown_at_zero: bool = True


def _counter(name: str, documentation: str, *, zero: bool = True, **labels: tuple[str, ...]) -> Series:
    return Series(f"logitd_{name}_total", Kind.COUNTER, documentation, labels, is_shown_at_zero=zero)


def _gauge(name: str, documentation: str, **labels: tuple[str, ...]) -> Series:
    return Series(f"logitd_{name}", Kind.GAUGE, documentation, labels)


def _histogram(
    name: str, documentation: str, bounds: Iterable[float], *, zero: bool = True, **labels: tuple[str, ...]
) -> Series:
    # Among floats alone a place is found in half the time.
    return Series(f"logitd_{name}", Kind.HISTOGRAM, documentation, labels, tuple(map(float, bounds)), zero)


REQUESTS = _counter("requests", "Requests; code 499 is a client that left.", zero=False, endpoint=(), code=())
REJECTED = _counter("requests_rejected", "Requests that were turned away, by why.", reason=REJECTIONS)
DURATION = _histogram(
    "request_duration_seconds",
    "From a request's headers to the last byte of its answer.",
    _LATENCY_SECONDS,
    zero=False,
    endpoint=(),
)
STAGE = _histogram(
    "stage_duration_seconds",
    "Where requests with tensors spend their time.",
    _LATENCY_SECONDS,
    stage=(*STAGES, "write"),
)
REQUEST_BYTES = _histogram("request_body_bytes", "Bodies of requests with tensors.", _BODY_BYTES)
RESPONSE_BYTES = _histogram("response_body_bytes", "Bodies of the answers to requests with tensors.", _BODY_BYTES)
INFLIGHT = _gauge("inflight_requests", "Requests that are being answered.")
ADMITTED = _gauge("admitted_requests", "Requests with tensors that were let in.")
ADMITTED_BYTES = _gauge("inflight_bytes", "Bytes of the bodies of those that were let in.")
CANCELLED = _counter("cancelled", "Requests whose client left, by what was being done.", stage=CANCELLED_STAGES)

QUEUE_ROWS = _gauge("queue_rows", "Rows that wait to be computed.")
QUEUE_REQUESTS = _gauge("queue_requests", "Requests that wait to be computed.")
QUEUE_BYTES = _gauge("queue_bytes", "Bytes of the rows that wait to be computed.")
QUEUE_OLDEST = _gauge("queue_oldest_seconds", "How long the oldest work has waited of which nothing was computed yet.")
BATCH_ROWS = _histogram("batch_rows", "Rows computed in one go.", _BATCH_SIZE, op=OPS)
BATCH_REQUESTS = _histogram("batch_requests", "Requests computed in one go, in whole or in part.", _BATCH_SIZE, op=OPS)
BATCHES = _counter(
    "batches",
    "Batches by what ended them: nothing else was waiting (idle), the budget (full), work of another shape "
    "(shape_change); or light work that was computed without waiting (inline).",
    op=OPS,
    release=RELEASES,
)
FILL = _histogram("batch_fill_ratio", "Share of the budget of rows or bytes, the fuller, of queued work.", _FILL_RATIO)
LAST_BATCH = _gauge("last_batch_timestamp_seconds", "When the queue's last batch was begun; at first the start.")

TOKENS = _counter("tokens_sampled", "Tokens drawn, by what truncated their distribution.", method=METHODS)
ROWS = _counter("rows", "Rows to sample, by what came of them.", kind=ROW_KINDS)
ENTROPY = _histogram("entropy_nats", "Entropy of each row.", _ENTROPY_NATS, when=WHEN)
SUPPORT = _histogram(
    "effective_support_tokens",
    "Tokens among which each row chooses: the exponential of its entropy, then the number kept.",
    _SUPPORT_TOKENS,
    when=WHEN,
)
MASS = _histogram("truncated_mass_ratio", "Probability that truncation took from each row.", _MASS_RATIO)

ATTENTION = _counter(
    "attention_requests",
    "Attention calls by how their heads were computed, and why: their length against the threshold, what was asked, "
    "or because the other way would not do.",
    algorithm=ALGORITHMS,
    reason=REASONS,
)
HEADS = _counter(
    "attention_heads", "Attention heads by how they were computed, and why.", zero=False, mode=_RUN_MODES, why=WHYS
)
LENGTH = _histogram("attention_sequence_length", "Keys of attention calls.", _SEQUENCE_LENGTH, algorithm=ALGORITHMS)
ERROR = _histogram(
    "attention_approx_relative_error",
    "Measured error of each attention head as it was answered.",
    _RELATIVE_ERROR,
    zero=False,
    kernel=_RUN_MODES,
)
ATTENTION_INFLIGHT = _gauge("attention_inflight_requests", "Attention requests waiting or being computed.")
SESSIONS = _gauge("sessions", "Open streaming sessions.")
SESSION_BYTES = _gauge("session_state_bytes", "What streaming sessions keep.")
SESSION_EVENT = _counter("session_events", "What became of streaming sessions.", event=SESSION_EVENTS)

SHARED_REGIONS = _gauge("shm_regions", "Registered regions of shared memory.")
SHARED_BYTES = _gauge("shm_bytes", "Bytes of registered regions of shared memory.")
SHARED_ERRORS = _counter("shm_errors", "Uses of shared memory that were refused.", reason=SHARED_MEMORY_ERRORS)

READY = _gauge("ready", "1 while new work is welcome.")
ENGINE_UP = _gauge("engine_up", "1 while the engine computes and its last self-test passed.")
SELF_TESTS = _counter("self_tests", "Tests of failed kernels, by what they came to.", outcome=("passed", "failed"))
LAG = _histogram("event_loop_lag_seconds", "By how much the event loop is late.", _LATENCY_SECONDS)
LOOP_TASKS = _gauge("event_loop_tasks", "Tasks of the event loop.")
DEVICE_MEMORY = _gauge(
    "device_memory_bytes",
    "Memory of the GPU; without one, of the process, and of its control group or machine.",
    kind=("used", "total"),
)
BUILD = _gauge("build_info", "Always 1.", version=(), backend=())
CONFIG = _gauge("config_info", "Always 1; the same hash is the same settings.", hash=())

SERIES = tuple(value for value in list(globals().values()) if isinstance(value, Series))
