"""The charts of a report."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from loadtest.http.profiles import watch
from loadtest.http.profiles.figures import timeline
from loadtest.http.profiles.record import Columns, Verdict, code_name
from loadtest.http.profiles.svg import Chart, Line

if TYPE_CHECKING:
    from loadtest.http.profiles.run import Outcome

_TIME = "seconds"
_MOST_LINES = 8
_TAIL = ((0.0, "0"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99"))


def charts(outcome: "Outcome") -> list[Chart]:
    """Return those that have something to show."""
    columns = outcome.columns
    marks = [] if outcome.profile.stepwise else [(span.begins, span.name) for span in outcome.spans]
    found = [*_requests(columns, marks), *_server(outcome.seen, marks), *_ramp(outcome)]
    found.append(_tail(columns, outcome.record.kinds))
    return [chart for chart in found if not chart.empty]


def _requests(columns: Columns, marks: Sequence[tuple[float, str]]) -> Iterator[Chart]:
    course = timeline(columns)
    latency = [Line(name, course.at, values) for name, values in course.latency_ms.items()]
    yield Chart("Latency, from when a request was due", _TIME, "ms", latency, log_y=True, marks=marks)
    rates = [Line(name, course.at, values) for name, values in course.rates.items()]
    yield Chart("Requests", _TIME, "a second", rates, marks=marks)
    codes = [Line(code_name(code), course.at, values) for code, values in course.codes.items()]
    often = sorted(codes, key=lambda line: -sum(line.ys))[:_MOST_LINES]
    yield Chart("Answers by status", _TIME, "a second", often, log_y=True, marks=marks)


def _server(seen: watch.Watch, marks: Sequence[tuple[float, str]]) -> Iterator[Chart]:
    gauges = {"rows": watch.QUEUE_ROWS, "requests": watch.QUEUE_REQUESTS, "in flight": watch.INFLIGHT}
    yield Chart(
        "Queue", _TIME, "count", [Line(name, *seen.gauge(series)) for name, series in gauges.items()], marks=marks
    )
    at, values = seen.gauge(watch.QUEUE_OLDEST)
    oldest = Line("oldest", at, [1e3 * value for value in values])
    yield Chart("Wait of the oldest in the queue", _TIME, "ms", [oldest], marks=marks)
    yield Chart("Entropy of rows", _TIME, "nats", list(_entropy(seen)), marks=marks)
    at, stages = seen.means(watch.STAGES, "stage")
    lines = [Line(name, at, [1e3 * value for value in values]) for name, values in stages.items()]
    yield Chart("Mean time of each stage", _TIME, "ms", lines, log_y=True, marks=marks)
    at, reasons = seen.rates(watch.REJECTED, "reason")
    refused = [Line(name, at, values) for name, values in reasons.items() if any(values)]
    yield Chart("Refused by the server, by reason", _TIME, "a second", refused, marks=marks)
    at, values = seen.gauge(watch.MEMORY, kind="used")
    memory = Line("used", at, [value / 2**20 for value in values])
    yield Chart("Memory of the server", _TIME, "MiB", [memory], marks=marks)


def _entropy(seen: watch.Watch) -> Iterator[Line]:
    for when in ("after_temperature", "after_truncation"):
        at, columns = seen.quantiles(watch.ENTROPY, (0.1, 0.5, 0.9), when=when)
        for share, values in zip(("p10", "median", "p90"), columns, strict=False):
            yield Line(f"{share} {when.replace('_', ' ')}", at, values)


def _ramp(outcome: "Outcome") -> Iterator[Chart]:
    if not outcome.profile.stepwise:
        return
    rates = [step.rate for step in outcome.steps]
    found = outcome.knee
    marks = [(found, "knee")] if found is not None else []
    good = [step.rate * (step.values["goodput"] or 0.0) for step in outcome.steps]
    yield Chart(
        "Goodput over what was offered", "requests offered a second", "answered a second",
        [Line("answered as expected", rates, good), Line("offered", rates, rates)], marks=marks,
    )  # fmt: skip
    latency = [
        Line(name, rates, [1e3 * (step.values[name] or math.nan) for step in outcome.steps])
        for name in ("p50", "p90", "p99")
    ]
    yield Chart("Latency over what was offered", "requests offered a second", "ms", latency, log_y=True, marks=marks)


def _tail(columns: Columns, kinds: Sequence[str]) -> Chart:
    """Return latency over the percentile, each further nine as wide as the one before."""
    good = columns.where(columns.verdict == Verdict.EXPECTED)
    counts = np.bincount(good.kind, minlength=len(kinds))
    lines = []
    for place in np.argsort(-counts)[:_MOST_LINES]:
        if counts[place]:
            values = np.sort(good.latency[good.kind == place])
            nines = np.linspace(0.0, math.log10(len(values)), 60)
            at = np.minimum((len(values) * (1 - 10.0**-nines)).astype(int), len(values) - 1)
            lines.append(Line(kinds[place], nines.tolist(), (values[at] * 1e3).tolist()))
    return Chart("Latency by percentile and kind", "percentile", "ms", lines, log_y=True, x_ticks=_TAIL)
