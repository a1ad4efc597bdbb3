"""Prometheus' text as numbers, and what follows from two readings of it."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

Key = tuple[str, frozenset[tuple[str, str]]]  # a name, and labels with their values
Samples = Mapping[Key, float]

_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str, prefixes: tuple[str, ...]) -> dict[Key, float]:
    """Return the samples whose names begin with one of the prefixes."""
    found = {}
    for line in text.splitlines():
        if line.startswith(prefixes) and (sample := _LINE.match(line)):
            found[sample["name"], frozenset(_LABEL.findall(sample["labels"] or ""))] = float(sample["value"])
    return found


def key(name: str, **labels: str) -> Key:
    """Return the key of a sample."""
    return name, frozenset(labels.items())


def labelled(found: Samples, name: str, label: str) -> set[str]:
    """Return the values that a label of a name has."""
    return {dict(labels)[label] for one, labels in found if one == name and label in dict(labels)}


def increase(before: Samples, after: Samples, keys: Iterable[Key]) -> float:
    """Return by how much some counters grew together; from 0 where a server was started anew."""
    total = 0.0
    for one in keys:
        old, new = before.get(one, 0.0), after.get(one, 0.0)
        total += new - old if new >= old else new
    return total


def quantiles(
    before: Samples, after: Samples, name: str, labels: Mapping[str, str], wanted: Sequence[float]
) -> list[float]:
    """Return quantiles of what a histogram was told between two readings, as PromQL's `histogram_quantile` does.

    Args:
        before, after: the readings.
        name: of the histogram, without `_bucket`.
        labels: of its series, without `le`.
        wanted: shares.

    Returns:
        One for each share; NaN where nothing was told.
    """
    bucket, own = f"{name}_bucket", frozenset(labels.items())
    keys = [one for one in after if one[0] == bucket and own <= one[1]]
    bounds = sorted((float(dict(one[1])["le"]), increase(before, after, [one])) for one in keys)
    return [_quantile(bounds, share) for share in wanted]


def _quantile(bounds: Sequence[tuple[float, float]], share: float) -> float:
    if not bounds or not bounds[-1][1]:
        return math.nan
    rank, low, below = share * bounds[-1][1], 0.0, 0.0
    for bound, count in bounds:
        if count >= rank:
            inside = count - below
            return low if math.isinf(bound) else low + (bound - low) * ((rank - below) / inside if inside else 1.0)
        low, below = bound, count
    return low
