"""`--plot`: a comparison drawn, error against cost. matplotlib is an extra, imported only here."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from logitd.cli.attention.table import quantile
from logitd.cli.failure import CannotRun
from logitd.client import Comparison, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "osD^v<>ph*XP"


def new_figure(path: str) -> "Figure":
    """Return an empty figure that can be saved to a file of this name; asked for before anything is computed.

    Raises:
        CannotRun: matplotlib is missing, or cannot write such a file.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise CannotRun(f"--plot needs matplotlib ({error}): pip install 'logitd[plot]'") from error
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    ending = Path(path).suffix.removeprefix(".").lower()
    known = figure.canvas.get_supported_filetypes()
    if ending not in known:
        raise CannotRun(f"--plot {path}: the name must end in one of {', '.join(sorted(known))}")
    return figure


def draw(figure: "Figure", comparison: Comparison, path: str) -> None:
    """Draw the median error of the heads of every method against its cost, with bars up to nine heads of ten.

    Both axes are logarithmic; methods without a bound on their error, and without any, are left out.

    Raises:
        CannotRun: the file cannot be written.
    """
    axes = figure.add_subplot()
    for place, (method, points) in enumerate(_methods(comparison)):
        costs, medians, tops = np.array(points).T
        bars = np.stack([np.zeros_like(tops), np.where(np.isfinite(tops), tops - medians, 0)])
        style = f"{_MARKERS[place % len(_MARKERS)]}-"
        axes.errorbar(costs, medians, bars, fmt=style, capsize=2, label=method)
    axes.axvline(1, color="grey", linewidth=1)
    axes.axhline(comparison.tolerance, color="grey", linewidth=1, linestyle="--", label="tolerance")
    axes.set(xscale="log", yscale="log", xlabel="multiply-adds, exact attention = 1", ylabel="relative error of heads")
    axes.set_title("Median over heads, bars to 90 %")
    axes.grid(which="both", alpha=0.2)
    figure.legend(loc="outside right upper", fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise CannotRun(f"--plot {path}: {error.strerror}") from error


def _methods(comparison: Comparison) -> Iterator[tuple[str, list[tuple[float, float, float]]]]:
    """Yield each method that can be drawn, with cost, median error and 90 % error by rising cost."""
    for method, trials in groupby(comparison.trials, key=lambda trial: trial.method):
        points = sorted(point for trial in trials if (point := _point(trial)) is not None)
        if points and method != "exact":
            yield method, points


def _point(trial: Trial) -> tuple[float, float, float] | None:
    median, top = quantile(trial.relative_error, 0.5), quantile(trial.relative_error, 0.9)
    if median is None or top is None or not 0 < median < np.inf or trial.cost <= 0:
        return None
    return trial.cost, median, top
