"""The figures as a picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtest.attention.crossover import Crossover
from loadtest.attention.curve import STEP, Curve
from loadtest.attention.figures import Figure


def draw(figures: Sequence[Figure], crossovers: Sequence[Crossover], curves: Sequence[Curve], path: Path) -> None:
    """Draw time over L on log-log axes, a panel a mask, and a panel of decoding.

    A ring on a method's line is where it crosses that of exact; bars go from p20 to p80.
    """
    from matplotlib import pyplot

    page, panels = pyplot.subplots(1, 3, figsize=(18, 5.5))
    methods = list(dict.fromkeys(figure.method for figure in figures))
    colours = {name: pyplot.colormaps["tab10"](place) for place, name in enumerate(methods)}
    about = {(one.method, one.causal): one.about for one in crossovers if one.against == "exact"}
    for panel, causal in zip(panels, (False, True), strict=False):
        for method in methods:
            mine = [figure for figure in figures if (figure.method, figure.causal) == (method, causal)]
            _line(panel, mine, about.get((method, causal)), colours[method])
        panel.set(title="causal" if causal else "not causal", xlabel="L", ylabel="ms a call")
    for curve in (one for one in curves if one.what == STEP):
        points = [1e3 * spread.median for spread in curve.points]
        panels[2].plot(curve.sizes, points, "o-", label=curve.method, color=colours.get(curve.method))
    panels[2].set(title="one token more in a stream", xlabel="tokens", ylabel="ms a step")
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set_yscale("log")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    page.suptitle("attention on one thread, 4 heads of dim 64, float32; rings: as fast as exact")
    page.tight_layout()
    page.savefig(path, dpi=110)
    pyplot.close(page)


def _line(panel: Any, mine: Sequence[Figure], about: float | None, colour: Any) -> None:  # noqa: ANN401  (matplotlib's)
    median = [1e3 * figure.seconds.median for figure in mine]
    below = [1e3 * (figure.seconds.median - figure.seconds.p20) for figure in mine]
    above = [1e3 * (figure.seconds.p80 - figure.seconds.median) for figure in mine]
    label = mine[0].method + (f", crosses at {about:,.0f}" if about else "")
    lengths = [figure.length for figure in mine]
    panel.errorbar(lengths, median, [below, above], fmt="o-", markersize=4, color=colour, label=label)
    if about:
        panel.plot(about, 1e3 * _at(mine, about), "o", markersize=12, fillstyle="none", color=colour)


def _at(mine: Sequence[Figure], length: float) -> float:
    """Return a method's seconds between two measured lengths, linear on log-log axes."""
    after = next(place for place, figure in enumerate(mine) if figure.length >= length)
    left, right = mine[after - 1], mine[after]
    share = math.log(length / left.length) / math.log(right.length / left.length)
    return float(left.seconds.median ** (1 - share) * right.seconds.median**share)
