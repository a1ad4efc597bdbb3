"""Figures of a run: percentiles of all values that were recorded, nothing binned or estimated."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from loadtest.http.profiles.record import Columns, Record, Span, Verdict
from numpy.typing import NDArray

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
_POINTS = 120  # of a line over time
_LEAST_WIDTH_SECONDS = 0.5


def percentiles(values: NDArray[np.floating[Any]], wanted: Sequence[float] = PERCENTILES) -> dict[str, float]:
    """Return the smallest value that so many per cent do not exceed, by name: `p99.9`; nothing for no values."""
    if not len(values):
        return {}
    ordered = np.sort(values)
    places = (math.ceil(round(percent / 100 * len(ordered), 6)) - 1 for percent in wanted)
    return {f"p{percent:g}": float(ordered[place]) for percent, place in zip(wanted, places, strict=True)}


@dataclass(frozen=True)
class Figures:
    """Of some requests.

    Attributes:
        requests: how many there were.
        expected, shed, errors: how many of them had an answer as expected, were turned away, or neither.
        seconds: over which they were due.
        possible: how many of them the server could have answered, by its capacity; all where that is unknown.
        codes: answers by status.
        latency_seconds: percentiles, max and mean of those answered as expected.
        lag_seconds: the 99th percentile of how late this client sent.
    """

    requests: int
    expected: int
    shed: int
    errors: int
    seconds: float
    possible: float
    codes: dict[int, int] = field(default_factory=dict)
    latency_seconds: dict[str, float] = field(default_factory=dict)
    lag_seconds: float = 0.0

    def value(self, metric: str) -> float | None:
        """Return what an SLO may be about; None where there is nothing to tell."""
        if not self.requests:
            return None
        if metric in ("errors", "shed"):
            return float(getattr(self, metric)) / self.requests
        if metric == "goodput":
            return self.expected / self.possible
        if metric == "rate":
            return self.expected / self.seconds if self.seconds else None
        return self.lag_seconds if metric == "lag" else self.latency_seconds.get(metric)


def figures(columns: Columns, spans: Sequence[Span], capacity: float | None) -> Figures:
    """Return the figures of some requests.

    Args:
        columns: the requests.
        spans: the phases that they may be of, judged parts alone.
        capacity: requests a second; None where it is unknown.
    """
    judged = columns.where(_judged(columns, spans))
    seconds = sum(span.judged_seconds for span in spans)
    possible = 0.0
    for span in spans:
        count = int((judged.phase == span.place).sum())
        possible += count * (min(1.0, capacity / span.rate) if capacity and span.rate else 1.0)
    counts = np.bincount(judged.verdict, minlength=len(Verdict)).tolist()
    good = judged.latency[judged.verdict == Verdict.EXPECTED]
    latency = percentiles(good)
    if latency:
        latency |= {"max": float(good.max()), "mean": float(good.mean(dtype=np.float64))}
    codes, each = np.unique(judged.code, return_counts=True)
    lag = percentiles(judged.lag, (99.0,)).get("p99", 0.0)
    by_code = dict(zip(codes.tolist(), each.tolist(), strict=True))
    return Figures(len(judged), counts[0], counts[1], counts[2], seconds, possible, by_code, latency, lag)


def growth(columns: Columns, spans: Sequence[Span]) -> float | None:
    """Return the 99th percentile of the last third of the judged time over that of the first; None without either."""
    good = columns.where(_judged(columns, spans) & (columns.verdict == Verdict.EXPECTED))
    if not len(good):
        return None
    first, last = good.due.min(), good.due.max()
    third = (last - first) / 3
    early, late = (
        percentiles(good.latency[chosen], (99.0,)).get("p99")
        for chosen in (good.due < first + third, good.due > last - third)
    )
    return late / early if early and late else None


@dataclass(frozen=True)
class Timeline:
    """Figures of short spaces of time, one entry each.

    Attributes:
        at: seconds from the run's beginning, the middle.
        rates: requests a second: `due`, `expected`, `shed`, `errors`.
        latency_ms: `p50`, `p90`, `p99` and `max` of those answered as expected, by when they were due; NaN for none.
        codes: answers a second by status.
    """

    at: list[float]
    rates: dict[str, list[float]]
    latency_ms: dict[str, list[float]]
    codes: dict[int, list[float]]


def timeline(columns: Columns) -> Timeline:
    """Return the course of a run, of at most 120 points."""
    first, last = (float(columns.due.min()), float(columns.due.max())) if len(columns) else (0.0, 0.0)
    count = max(1, min(_POINTS, int((last - first) / _LEAST_WIDTH_SECONDS)))
    width = (last - first) / count or 1.0
    places = np.minimum(((columns.due - first) / width).astype(int), count - 1)

    def rate(chosen: NDArray[np.bool_]) -> list[float]:
        found: list[float] = (np.bincount(places[chosen], minlength=count) / width).tolist()
        return found

    verdicts = {"expected": Verdict.EXPECTED, "shed": Verdict.SHED, "errors": Verdict.ERROR}
    rates = {"due": rate(np.ones(len(columns), bool))}
    rates |= {name: rate(columns.verdict == value) for name, value in verdicts.items()}
    good = columns.verdict == Verdict.EXPECTED
    names = ("p50", "p90", "p99", "max")
    rows = [percentiles(columns.latency[good & (places == place)] * 1e3, (50, 90, 99, 100)) for place in range(count)]
    latency = {name: [row.get(name.replace("max", "p100"), float("nan")) for row in rows] for name in names}
    codes = {int(code): rate(columns.code == code) for code in np.unique(columns.code)}
    return Timeline([first + (place + 0.5) * width for place in range(count)], rates, latency, codes)


def whole(record: Record, start: int = 0) -> Columns:
    """Return all requests, or what ended after the first `start`, but those by which the capacity was measured."""
    columns = record.columns(start)
    open_loop = [span.place for span in record.spans if span.rate]
    return columns.where(np.isin(columns.phase, open_loop))


def _judged(columns: Columns, spans: Sequence[Span]) -> NDArray[np.bool_]:
    chosen = np.zeros(len(columns), bool)
    for span in spans:
        chosen |= (columns.phase == span.place) & (columns.due >= span.begins + span.settle_seconds)
    return chosen
