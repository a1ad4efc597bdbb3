"""Line charts as SVG, for a page that loads nothing."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from loadtest.http.profiles.axis import Axis, number

WIDTH, HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 14, 46
_COLOURS = 8


@dataclass(frozen=True)
class Line:
    """One line of a chart; NaN is a gap."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title, x_label, y_label: in words, with units.
        lines: at most eight are told apart.
        log_y: whether the upward axis is logarithmic; what is not positive is then not drawn.
        marks: vertical lines: x and what stands there.
        x_ticks: positions and texts, in place of computed ones.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_y: bool = False
    marks: Sequence[tuple[float, str]] = field(default=())
    x_ticks: Sequence[tuple[float, str]] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.points()

    def points(self) -> list[tuple[float, float]]:
        """Return what can be drawn."""
        return [(x, y) for line in self.lines for x, y in zip(line.xs, line.ys, strict=True) if self.drawable(x, y)]

    def drawable(self, x: float, y: float) -> bool:
        """Whether a point has a place."""
        return math.isfinite(x) and math.isfinite(y) and (y > 0 or not self.log_y)


def drawn(chart: Chart) -> str:
    """Return the chart as an `svg` element; its colours are those of the page's style."""
    points = chart.points()
    across = Axis.over([x for x, _ in points], _LEFT, WIDTH - _RIGHT)
    up = Axis.rounded([y for _, y in points], HEIGHT - _BOTTOM, _TOP, chart.log_y)
    parts = [*_grid(chart, across, up), *_marks(chart, across)]
    for place, line in enumerate(chart.lines):
        parts.append(_path(chart, line, across, up, place % _COLOURS))
    label = f'role="img" aria-label="{escape(chart.title)}"'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {label}>{"".join(parts)}</svg>'


def _grid(chart: Chart, across: Axis, up: Axis) -> Iterator[str]:
    for value in up.ticks():
        y = up.place(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{number(value)}</text>'
    ticks = chart.x_ticks or [(value, number(value)) for value in across.ticks()]
    for value, text in ticks:
        if across.low <= value <= across.high:
            x, y = across.place(value), HEIGHT - _BOTTOM + 16
            yield f'<text class="middle" x="{x:.1f}" y="{y}">{escape(text)}</text>'
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>'
    yield f'<text class="middle" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 8}">{escape(chart.x_label)}</text>'
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    yield f'<text class="middle" transform="translate(12 {middle}) rotate(-90)">{escape(chart.y_label)}</text>'


def _marks(chart: Chart, across: Axis) -> Iterator[str]:
    for value, text in chart.marks:
        if across.low <= value <= across.high:
            x = across.place(value)
            yield f'<path class="mark" d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
            yield f'<text class="mark" x="{x + 3:.1f}" y="{_TOP + 8}">{escape(text)}</text>'


def _path(chart: Chart, line: Line, across: Axis, up: Axis, colour: int) -> str:
    steps, pen = [], "M"
    for x, y in zip(line.xs, line.ys, strict=True):
        usable = chart.drawable(x, y)
        if usable:
            steps.append(f"{pen}{across.place(x):.1f} {up.place(y):.1f}")
        pen = "L" if usable else "M"
    lone = [step for step, after in zip(steps, [*steps[1:], "M"], strict=False) if step[0] == "M" == after[0]]
    dots = "".join(f"{step}h0" for step in lone)  # a point without neighbours is a dot
    return f'<path class="line c{colour}" d="{"".join(steps)}{dots}"/>'
