"""A run on the terminal: one line while it goes on, a table at its end."""

import sys
import time
from typing import Any, TextIO

from loadtest.http.profiles.figures import percentiles, whole
from loadtest.http.profiles.generate import Generator
from loadtest.http.profiles.record import Record, Verdict
from loadtest.http.profiles.schedule import Phase

_BAR = 16


class Progress:
    """One line that is written over and over, where somebody looks; otherwise nothing.

    Args:
        seconds: how long all phases last.
        stream: where it goes.
    """

    def __init__(self, seconds: float, stream: TextIO | None = None) -> None:
        self._seconds = seconds
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._read, self._read_at, self._began = 0, 0.0, 0.0

    def __call__(self, phase: Phase, generator: Generator, record: Record) -> None:
        """Tell how it goes."""
        if not self._shown:
            return
        now = time.perf_counter()
        self._began = self._began or now
        new, self._read = whole(record, self._read), len(record)
        seconds, self._read_at = now - (self._read_at or now - 0.5), now
        good = new.verdict == Verdict.EXPECTED
        p99 = percentiles(new.latency[good], (99.0,)).get("p99", 0.0)
        shed, errors = (int((new.verdict == one).sum()) / seconds for one in (Verdict.SHED, Verdict.ERROR))
        done = min(1.0, (now - self._began) / self._seconds)
        bar = ("█" * round(done * _BAR)).ljust(_BAR, "·")
        line = (
            f"{bar} {done:4.0%} {phase.name}: {phase.rate:,.0f}/s due, {good.sum() / seconds:,.0f}/s answered, "
            f"p99 {p99 * 1e3:,.1f} ms, shed {shed:,.0f}/s, errors {errors:,.0f}/s, {generator.under_way} under way"
        )
        self._stream.write(f"\r{line}\x1b[K")
        self._stream.flush()

    def close(self) -> None:
        """Leave the line empty."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def table(report: dict[str, Any]) -> list[str]:
    """Return the lines of a report."""
    kinds, phases = report["kinds"], report["phases"]
    lines = [_HEAD, *(_row(name, kinds[name]) for name in kinds)]
    if len(phases) > 1:
        lines += ["", *(_row(name, phases[name]) for name in phases)]
    lines += ["", _row("all", report["all"]), ""]
    answers = report["all"]["answers"]
    lines.append("answers   " + ", ".join(f"{code}: {count:,}" for code, count in answers.items()))
    if report["capacity_per_second"]:
        lines.append(f"capacity  {report['capacity_per_second']:,.0f} requests/s (closed loop)")
    if report["steps"]:
        knee = report["knee_per_second"]
        lines.append(f"knee      {f'{knee:,.0f} requests/s' if knee else 'none'}: {report['knee_rule']}")
    lines.append(f"client    sent at most {report['all']['lag_p99_seconds'] * 1e3:,.1f} ms late in 99 of 100 requests")
    lines += [f"{'held' if slo['met'] else 'BROKEN':9} {slo['text']}: {slo['shown']}" for slo in report["slos"]]
    return lines


_HEAD = (
    f"{'':18}{'requests':>9} {'good/s':>8} {'shed':>7} {'errors':>7} {'p50':>9} {'p90':>9} {'p99':>9} {'max':>9}  ms"
)


def _row(name: str, told: dict[str, Any]) -> str:
    found = told["latency_seconds"]
    latency = " ".join(
        f"{found[key] * 1e3:9,.2f}" if key in found else f"{'':9}" for key in ("p50", "p90", "p99", "max")
    )
    rate = told["expected_per_second"] or 0.0
    return f"{name:18}{told['requests']:9,} {rate:8,.1f} {told['shed']:7,} {told['errors']:7,} {latency}"
