"""Figures as text."""

from collections.abc import Sequence

from loadtest.attention.crossover import Crossover
from loadtest.attention.curve import MEMORY, STATE, STEP, TIME, Curve
from loadtest.attention.figures import YARDSTICKS, Figure
from loadtest.kernels.table import duration, times

_WIDTH = 18


def figures(some: Sequence[Figure]) -> str:
    """Return the figures of one mask: a line a length, a column a method, each with how many times as fast as exact."""
    methods = list(dict.fromkeys(figure.method for figure in some))
    at = {(figure.method, figure.length): figure for figure in some}
    mask = "causal" if some[0].causal else "not causal"
    head = f"\n{mask}: time of a call, and how many times as fast as exact\n{_row('L', methods)}"
    lengths = sorted({figure.length for figure in some})
    return "\n".join([head, *(_row(f"{one:,}", [_cell(at.get((name, one))) for name in methods]) for one in lengths)])


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    exact = figure.faster.get("exact")
    return f"{duration(figure.seconds.median)} {times(exact.median) if exact else '':>5}"


def errors(some: Sequence[Figure]) -> str:
    """Return the largest relative error of each method at any length, of calls whose logits hardly vary."""
    methods = list(dict.fromkeys(figure.method for figure in some))
    worst = [max(figure.error for figure in some if figure.method == method) for method in methods]
    return f"relative error on this data, the largest\n{_row('', [f'{error:.2g}' for error in worst])}"


def crossovers(some: Sequence[Crossover]) -> str:
    """Return from which length on each method is faster than exact and exact_bf16."""
    columns = [(against, causal) for causal in (False, True) for against in YARDSTICKS]
    names = [f"{against}{', causal' if causal else ''}" for against, causal in columns]
    at = {(one.method, one.against, one.causal): one for one in some}
    head = "\nfaster than this, from this length on (–: not even at the longest)"
    lines = [head, f"  {'':<12}{''.join(f'{name:>24}' for name in names)}"]
    for method in dict.fromkeys(one.method for one in some):
        cells = [_crossing(at.get((method, *column))) for column in columns]
        lines.append(f"  {method:<12}{''.join(f'{cell:>24}' for cell in cells)}")
    return "\n".join(lines)


def _crossing(one: Crossover | None) -> str:
    if one is None:
        return ""
    if one.length is None:
        return "–"
    return f"{one.length:,}" + (f" (about {one.about:,.0f})" if one.about else " (all)")


def growth(curves: Sequence[Curve]) -> str:
    """Return time and memory by length with their slopes, a line a curve."""
    lines = ["\nslope over L on log-log axes, round by round: 1 is linear"]
    for curve in (one for one in curves if one.what in (TIME, MEMORY)):
        pairs = zip(curve.sizes, curve.points, strict=True)
        shown = duration if curve.what == TIME else size
        points = "  ".join(f"{length:,}: {shown(spread.median)}" for length, spread in pairs)
        mask = "causal" if curve.causal else "not causal"
        lines.append(f"  {curve.what:<7}{curve.method:<11} {mask:<11} {curve.slope.median:5.2f}   {points}")
    return "\n".join(lines)


def decode(curves: Sequence[Curve]) -> str:
    """Return time of a step and size of a stream by its tokens, a column a method; both curves of it are there."""
    steps, states = ([curve for curve in curves if curve.what == what] for what in (STEP, STATE))
    lines = [
        "\none token more in a stream, and what the stream keeps",
        _row("tokens", [step.method for step in steps]),
    ]
    for place, tokens in enumerate(steps[0].sizes):
        pairs = ((step.points[place], state.points[place]) for step, state in zip(steps, states, strict=True))
        cells = [f"{duration(step.median)} {size(state.median):>8}" for step, state in pairs]
        lines.append(_row(f"{tokens:,}", cells))
    return "\n".join([*lines, _row("slope", [f"{step.slope.median:.2f}" for step in steps])])


def size(count: float) -> str:
    """Return bytes with three digits and a unit: `41.2 MiB`."""
    unit, scale = ("MiB", 2**20) if count >= 2**20 else ("KiB", 2**10)
    return f"{count / scale:.3g} {unit}"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"  {name:>7}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells)
