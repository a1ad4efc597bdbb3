"""Reads the admin port while a run goes on: how long probes take, and what the server tells of itself.

On a thread of its own, with a connection of its own: the generator's event loop does not wait for it.
"""

import math
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loadtest.http.client import Address, NotAnsweredError, ask, connected, get
from loadtest.http.profiles.exposition import Key, Samples, increase, key, labelled, quantiles, samples

# The series that reports show; the names are those of docs/api.md.
QUEUE_ROWS, QUEUE_REQUESTS = "logitd_queue_rows", "logitd_queue_requests"
QUEUE_OLDEST, INFLIGHT = "logitd_queue_oldest_seconds", "logitd_inflight_requests"
ENTROPY, REJECTED = "logitd_entropy_nats", "logitd_requests_rejected_total"
STAGES, MEMORY = "logitd_stage_duration_seconds", "logitd_device_memory_bytes"
_SERIES = (QUEUE_ROWS, QUEUE_REQUESTS, QUEUE_OLDEST, INFLIGHT, ENTROPY, REJECTED, STAGES, MEMORY)
_PROBE_SECONDS = 0.1  # between two questions


@dataclass(frozen=True)
class Reading:
    """One reading of the metrics, so many seconds from the run's beginning."""

    at: float
    found: Samples


@dataclass
class Watch:
    """What was read.

    Attributes:
        readings: of the metrics.
        probe_seconds: how long each question took; infinite where it had no answer, or another than 200.
    """

    readings: list[Reading] = field(default_factory=list)
    probe_seconds: list[float] = field(default_factory=list)

    def gauge(self, name: str, **labels: str) -> tuple[list[float], list[float]]:
        """Return times and values; NaN where a reading lacked it."""
        wanted = key(name, **labels)
        return [one.at for one in self.readings], [one.found.get(wanted, math.nan) for one in self.readings]

    def rates(self, name: str, label: str) -> tuple[list[float], dict[str, list[float]]]:
        """Return times, and by how much each counter of a name grew a second, by the value of a label."""
        return self._times(), {
            value: [_grown(*pair, key(name, **{label: value})) for pair in self._pairs()]
            for value in self._labelled(name, label)
        }

    def quantiles(self, name: str, wanted: Sequence[float], **labels: str) -> tuple[list[float], list[list[float]]]:
        """Return times, and a list of values for each share that is wanted."""
        rows = [quantiles(a.found, b.found, name, labels, wanted) for a, b in self._pairs()]
        return self._times(), [list(column) for column in zip(*rows, strict=True)]

    def means(self, name: str, label: str) -> tuple[list[float], dict[str, list[float]]]:
        """Return times, and the mean of what a histogram was told, by the value of a label; NaN for nothing."""
        return self._times(), {
            value: [_mean(a.found, b.found, name, {label: value}) for a, b in self._pairs()]
            for value in self._labelled(f"{name}_sum", label)
        }

    def _labelled(self, name: str, label: str) -> list[str]:
        return sorted(set().union(*(labelled(one.found, name, label) for one in self.readings)))

    def _pairs(self) -> Iterator[tuple[Reading, Reading]]:
        return zip(self.readings, self.readings[1:], strict=False)

    def _times(self) -> list[float]:
        return [(a.at + b.at) / 2 for a, b in self._pairs()]


def _grown(before: Reading, after: Reading, counter: Key) -> float:
    return increase(before.found, after.found, [counter]) / (after.at - before.at)


def _mean(before: Samples, after: Samples, name: str, labels: Mapping[str, str]) -> float:
    total, count = (increase(before, after, [key(f"{name}_{part}", **labels)]) for part in ("sum", "count"))
    return total / count if count else math.nan


class Watcher:
    """Watches from `start` to `stop`.

    Args:
        address: of the admin port.
        began: when the run began, by `time.perf_counter`.
        metrics_seconds: between two readings of the metrics.
    """

    def __init__(self, address: Address, began: float, metrics_seconds: float) -> None:
        self.seen = Watch()
        self._address, self._began, self._metrics_seconds = address, began, metrics_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> Watch:
        """End, after a last reading; returns what was seen."""
        self._stopping.set()
        self._thread.join()
        return self.seen

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with connected(self._address) as connection:
                    self._watch(connection)
            except (OSError, NotAnsweredError):
                self.seen.probe_seconds.append(math.inf)
                self._stopping.wait(_PROBE_SECONDS)

    def _watch(self, connection: socket.socket) -> None:
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(_PROBE_SECONDS)
            for path in ("/health/live", "/health/ready"):
                self._ask(connection, path)
            last = self.seen.readings[-1].at if self.seen.readings else -math.inf
            if stopping or time.perf_counter() - self._began - last >= self._metrics_seconds:
                text = self._ask(connection, "/metrics").decode()
                self.seen.readings.append(Reading(time.perf_counter() - self._began, samples(text, _SERIES)))

    def _ask(self, connection: socket.socket, path: str) -> bytes:
        asked = time.perf_counter()
        body = ask(connection, get(path))
        self.seen.probe_seconds.append(time.perf_counter() - asked)
        return body
