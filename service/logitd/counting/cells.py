"""Counts, one set a thread, added up when somebody asks.

`+=` on a number is a read and a write, between which another thread may come. A lock costs as much as the counting, and
the event loop would wait for a compute thread that was put aside while it had it. So each thread writes counts that no
other thread writes: nothing is lost, and nobody waits. Whoever reads them sees each number as it was a moment ago.
"""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from logitd.counting.series import ENTROPY, MASS, SERIES, SUPPORT, WHEN, Kind, Series

Labels = tuple[str, ...]
Buckets = list[float]  # how many fell into each, +Inf included, and last the sum of all that fell


class Example(NamedTuple):
    """One observation that can be looked up: the trace that it belongs to, and when it was, on the wall clock."""

    trace_id: str
    value: float
    wall_seconds: float


class Counts(dict[Labels, float]):
    """A counter by label values."""

    def __missing__(self, labels: Labels) -> float:
        return 0


class Histograms(dict[Labels, Buckets]):
    """A histogram by label values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__()
        self._width = len(bounds) + 1

    def __missing__(self, labels: Labels) -> Buckets:
        buckets = self[labels] = [0] * self._width + [0.0]
        return buckets


class Cells:
    """What one thread counts.

    Attributes:
        counts, histograms: by series.
        examples: of the buckets of histograms, the last of each.
        of_rows: the histograms of entropy and support before truncation, of both after it, and of the mass it took.
        inflight: requests that began on this thread, less those that ended.
        last_batch_seconds: when it began its last batch, on the wall clock; 0 for never.
    """

    def __init__(self) -> None:
        self.counts = {series: Counts() for series in SERIES if series.kind is Kind.COUNTER}
        self.histograms = {series: Histograms(series.bounds) for series in SERIES if series.kind is Kind.HISTOGRAM}
        self.examples: dict[tuple[Series, Labels, int], Example] = {}
        entropies, supports = self.histograms[ENTROPY], self.histograms[SUPPORT]
        before, after = (WHEN[0],), (WHEN[1],)
        self.of_rows = (
            entropies[before],
            supports[before],
            entropies[after],
            supports[after],
            self.histograms[MASS][()],
        )
        self.inflight = 0
        self.last_batch_seconds = 0.0

    def count(self, series: Series, *labels: str, by: float = 1) -> None:
        """Count."""
        self.counts[series][labels] += by

    def observe(self, series: Series, value: float, *labels: str) -> None:
        """Count one value of a histogram."""
        put(self.histograms[series][labels], series.bounds, value)


def put(buckets: Buckets, bounds: Sequence[float], value: float) -> int:
    """Count one value; returns the bucket it fell into."""
    bucket = bisect_left(bounds, value)
    buckets[bucket] += 1
    buckets[-1] += value
    return bucket


class Threads:
    """The cells of every thread that has counted anything."""

    def __init__(self) -> None:
        self.all: list[Cells] = []
        self._mine = threading.local()

    @property
    def mine(self) -> Cells:
        """Those of the calling thread. Threads are few and stay; what one counted outlives it."""
        try:
            cells: Cells = self._mine.cells
        except AttributeError:
            cells = self._mine.cells = Cells()
            self.all.append(cells)
        return cells
