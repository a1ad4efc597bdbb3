"""Figures as text."""

from collections.abc import Sequence
from typing import Any

from loadtest.kernels.cases import Work, all_cases
from loadtest.kernels.claims import Verdict
from loadtest.kernels.figures import Figure
from loadtest.kernels.floor import floor_pass
from loadtest.kernels.scaling import MOST, Curve
from loadtest.kernels.timing import Spread

_COLUMNS = f"{'median':>9} {'p20':>9} {'p80':>9} {'GB/s':>7} {'× floor':>8} {'rounds':>6}"
HEADER = f"  {'case':<18} {'contender':<18} {_COLUMNS}"
CLAIMS = f"\n  {'':<62} {'ratio (p20–p80)':<24} {'target':<7} {'':<7} measured on"


def duration(seconds: float) -> str:
    """Return a time with three digits and a unit: `41.2 µs`."""
    units = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))
    unit, scale = next((one for one in units if seconds * one[1] >= 1), units[-1])
    value = seconds * scale
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def times(ratio: float) -> str:
    """Return a ratio with about three digits."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def heading(work: Work) -> str:
    """Return the lines over the figures of one kind of rows."""
    rows = "one row a call" if work.batch == 1 else f"{work.batch} rows a call, times for one row"
    allowed = "one thread (CPU time)" if work.threads == 1 else f"{work.threads} threads (wall time)"
    vocab = f"{work.blocks[0].shape[1]:,}"
    under = f"floor: {floor_pass()[1]}, one thread"
    return f"\n{work.kind} rows, V = {vocab}, float32, {allowed}, {rows}; {under}\n{HEADER}"


def lines(figures: Sequence[Figure]) -> list[str]:
    """Return the figures of one case, one a line, the case named on the first."""
    return [_line(figure, figure.case if place == 0 else "") for place, figure in enumerate(figures)]


def _line(figure: Figure, case: str) -> str:
    spread = figure.seconds
    spent = " ".join(f"{duration(value):>9}" for value in (spread.median, spread.p20, spread.p80))
    ratio = times(figure.over_floor.median)
    return f"  {case:<18} {figure.contender:<18} {spent} {figure.gb_per_s:>7.2f} {ratio:>8} {figure.rounds:>6}"


def costs(figures: Sequence[Figure]) -> list[str]:
    """Return what each case adds to the one it is made of, in floors, one line for each of our compiled contenders."""
    made = []
    for name in ("cpu native", "cpu python"):
        known = {one.case: one.over_floor.median for one in figures if one.contender == name}
        pairs = [(case.name, case.over) for case in all_cases() if case.name in known and case.over in known]
        more = ", ".join(f"{case} {known[case] - known[under]:.2f}" for case, under in pairs)
        made += [f"  {name}, floors over the same without: {more}"] if more else []
    return made


def verdict(one: Verdict) -> str:
    """Return a claim, its ratio, its target and whether it was met."""
    found = "absent" if one.ratio is None else f"{times(one.ratio.median)} ({_range(one.ratio)})"
    mark = {True: "met", False: "MISSED", None: ""}[one.met]
    return f"  {one.text:<62} {found:<24} {one.target:<7} {mark:<7} {one.subject}"


def curve(one: Curve) -> str:
    """Return the points of a curve and its slope."""
    pairs = zip(one.sizes, one.seconds, strict=True)
    points = "  ".join(f"{size:,}: {duration(spread.median)}" for size, spread in pairs)
    mark = "met" if one.slope <= MOST else "MISSED"
    return f"  {one.axis}: {one.label}, {one.contender}\n    {points}\n    slope {one.slope:.3f}   ≤ {MOST:g}   {mark}"


def absences(missing: dict[str, str]) -> str:
    """Return who is not here and why."""
    return "\n".join(f"  absent: {name} ({reason})" for name, reason in missing.items())


def about(machine: dict[str, Any]) -> str:
    """Return the machine, the commit and the versions in a few lines."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    head = f"{machine['processor']}, {machine['threads']} threads, load {machine['load']}, commit {machine['commit']}"
    return f"{head}\nPython {machine['python']}, {versions}"


def _range(spread: Spread) -> str:
    return f"{times(spread.p20)}–{times(spread.p80)}"
