"""What the threads have counted, as Prometheus reads it."""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, product

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from logitd.counting.cells import Buckets, Example, Labels, Threads
from logitd.counting.series import SERIES, Kind, Series

Gauges = Mapping[Series, Mapping[Labels, Callable[[], float]]]


class Exposition(Collector):
    """Yields every series; never waits for a thread that counts.

    Args:
        threads: who counts.
        gauges: what is asked when somebody looks.
    """

    def __init__(self, threads: Threads, gauges: Gauges) -> None:
        self._threads, self._gauges = threads, gauges
        self._families = {Kind.COUNTER: self._counter, Kind.GAUGE: self._gauge, Kind.HISTOGRAM: self._histogram}

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for series in SERIES:
            yield self._families[series.kind](series)

    def _counter(self, series: Series) -> Metric:
        totals = dict.fromkeys(_always(series), 0.0)
        for cells in self._threads.all:
            for labels, count in cells.counts[series].copy().items():
                totals[labels] = totals.get(labels, 0.0) + count
        family = CounterMetricFamily(series.name, series.documentation, labels=list(series.labels))
        for labels, total in totals.items():
            family.add_metric(labels, total)
        return family

    def _gauge(self, series: Series) -> Metric:
        family = GaugeMetricFamily(series.name, series.documentation, labels=list(series.labels))
        for labels, value in self._gauges.get(series, {}).items():
            family.add_metric(labels, value())
        return family

    def _histogram(self, series: Series) -> Metric:
        none = [0.0] * (len(series.bounds) + 2)
        totals: dict[Labels, Buckets] = dict.fromkeys(_always(series), none)
        for cells in self._threads.all:
            for labels, buckets in cells.histograms[series].copy().items():
                totals[labels] = [had + has for had, has in zip(totals.get(labels, none), buckets[:], strict=True)]
        family = HistogramMetricFamily(series.name, series.documentation, labels=list(series.labels))
        names = [*(repr(float(bound)) for bound in series.bounds), "+Inf"]
        for labels, buckets in totals.items():
            counts = zip(names, accumulate(buckets[:-1]), strict=True)
            shown = [(name, count, *self._exemplar(series, labels, at)) for at, (name, count) in enumerate(counts)]
            family.add_metric(labels, shown, buckets[-1])
        return family

    def _exemplar(self, series: Series, labels: Labels, bucket: int) -> tuple[()] | tuple[Exemplar]:
        found = [cells.examples.get((series, labels, bucket)) for cells in self._threads.all]
        last: Example | None = max(filter(None, found), key=lambda one: one.wall_seconds, default=None)
        return () if last is None else (Exemplar({"trace_id": last.trace_id}, last.value, last.wall_seconds),)


def _always(series: Series) -> list[Labels]:
    return list(product(*series.labels.values())) if series.is_shown_at_zero else []
