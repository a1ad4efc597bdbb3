"""The figures as pictures; matplotlib is needed here alone."""

from collections.abc import Sequence
from pathlib import Path

from loadtest.kernels.figures import Figure
from loadtest.kernels.rows import KINDS
from loadtest.kernels.scaling import Curve


def available() -> bool:
    """Whether matplotlib can be imported."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def draw_figures(figures: Sequence[Figure], path: Path) -> None:
    """Draw one panel a kind of rows: the median time of every contender by case, bars from p20 to p80."""
    from matplotlib import pyplot

    threads = min(figure.threads for figure in figures)
    figures = [figure for figure in figures if figure.threads == threads]
    kinds = [kind for kind in KINDS if any(figure.rows == kind for figure in figures)]
    cases = list(dict.fromkeys(figure.case for figure in figures))
    names = sorted({figure.contender for figure in figures} - {"floor"})
    page, panels = pyplot.subplots(len(kinds), 1, figsize=(13, 2.6 * len(kinds) + 1), sharex=True, squeeze=False)
    colours = pyplot.colormaps["tab20"]
    for panel, kind in zip(panels[:, 0], kinds, strict=True):
        for place, name in enumerate(["floor", *names]):
            mine = [figure for figure in figures if figure.rows == kind and figure.contender == name]
            spread = 0.7 * ((place + 0.5) / (len(names) + 1) - 0.5)
            at = [cases.index(figure.case) + spread for figure in mine]
            median = [1e6 * figure.seconds.median for figure in mine]
            below = [1e6 * max(figure.seconds.median - figure.seconds.p20, 0) for figure in mine]
            above = [1e6 * max(figure.seconds.p80 - figure.seconds.median, 0) for figure in mine]
            style = {"color": "black", "marker": "_"} if name == "floor" else {"color": colours(place), "marker": "o"}
            panel.errorbar(at, median, [below, above], linestyle="none", markersize=5, label=name, **style)
        panel.set(yscale="log", ylabel="µs a row", title=f"{kind} rows")
        panel.grid(axis="y", alpha=0.3)
    panels[-1, 0].set_xticks(range(len(cases)), cases)
    panels[0, 0].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    page.tight_layout()
    page.savefig(path, dpi=110)
    pyplot.close(page)


def draw_curves(curves: Sequence[Curve], path: Path) -> None:
    """Draw cost against V and against B on log-log axes, with a line of slope 1 through the last point."""
    from matplotlib import pyplot

    axes = list(dict.fromkeys(curve.axis for curve in curves))
    page, panels = pyplot.subplots(1, len(axes), figsize=(6 * len(axes), 4.5), squeeze=False)
    for panel, axis in zip(panels[0], axes, strict=True):
        for curve in (one for one in curves if one.axis == axis):
            median = [1e6 * spread.median for spread in curve.seconds]
            label = f"{curve.label}\n{curve.contender}, slope {curve.slope:.2f}"
            (line,) = panel.plot(curve.sizes, median, "o-", label=label)
            linear = [median[-1] * size / curve.sizes[-1] for size in curve.sizes]
            panel.plot(curve.sizes, linear, ":", color=line.get_color(), alpha=0.6)
        panel.set(xscale="log", yscale="log", xlabel=axis, ylabel="µs a call")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    page.suptitle("cost of a call on one thread (dotted: linear)")
    page.tight_layout()
    page.savefig(path, dpi=110)
    pyplot.close(page)
