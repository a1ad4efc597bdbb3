"""A histogram that counts a whole batch of values at once, for series with one value a row."""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_FEW = 16  # values that are counted one by one sooner than as an array


class BatchHistogram(Collector):
    """A histogram that counts a whole batch of values at once, for series with one value a row.

    Args:
        name, documentation: as for prometheus_client's Histogram.
        label: the one label's name; its values are fixed.
        values: the label's values.
        buckets: upper bounds, ascending; +Inf is added.
    """

    def __init__(
        self, name: str, documentation: str, label: str, values: Sequence[str], buckets: Sequence[float]
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._bounds = np.array(buckets, dtype=np.float64)
        self._bounds_list = list(buckets)
        self._counts = {value: np.zeros(len(buckets) + 1, np.int64) for value in values}
        self._sums = dict.fromkeys(values, 0.0)
        self._lock = threading.Lock()  # compute threads observe, the event loop collects

    def observe(self, value: str, observations: Iterable[float | None]) -> None:
        """Count observations under one value of the label; None, what a head form leaves open, is left out."""
        found = [number for number in observations if number is not None]
        if len(found) <= _FEW:
            with self._lock:
                for number in found:
                    self._counts[value][bisect_left(self._bounds_list, number)] += 1
                self._sums[value] += sum(found)
            return
        numbers = np.array(found, dtype=np.float64)
        counts = np.bincount(np.searchsorted(self._bounds, numbers, side="left"), minlength=len(self._bounds) + 1)
        with self._lock:
            self._counts[value] += counts
            self._sums[value] += float(numbers.sum())

    def collect(self) -> Iterator[Metric]:
        """Yield the family for exposition."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        names = [repr(float(bound)) for bound in self._bounds] + ["+Inf"]
        with self._lock:
            for value, counts in self._counts.items():
                buckets = list(zip(names, np.cumsum(counts).astype(float).tolist(), strict=True))
                family.add_metric([value], buckets, self._sums[value])
        yield family
