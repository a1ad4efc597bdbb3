"""Draw the dashboard's panels as a real Prometheus answers them."""

import json
import math
from datetime import UTC, datetime

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.dates import DateFormatter
from PIL import Image
from shipped import DASHBOARD, chosen

_COLUMN_INCHES, _ROW_INCHES = 0.5, 0.3
_COLOURS_KEPT = 96  # of the file's palette
_LONGEST_NAME = 22
_UNITS = {"percentunit": (100, "%"), "s": (1e3, "ms"), "bytes": (2**-20, "MiB"), "reqps": (1, "/s"), "ops": (1, "/s")}
_UNITS |= {"tokens/s": (1, "/s"), "rowsps": (1, "/s"), "none": (1, ""), "short": (1, "")}
_COLOURS = {"green": "#3a9d5d", "orange": "#e08b2c", "red": "#c8433c"}


def draw(prometheus, path, seconds, interval):
    """Write a PNG of the last seconds of every panel.

    Args:
        prometheus: answers `over(expr, seconds)`.
        interval: what the panels' rates are taken over.
    """
    panels = json.loads(DASHBOARD.read_text())["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(24 * _COLUMN_INCHES, height * _ROW_INCHES), dpi=90)
    for panel in panels:
        at = panel["gridPos"]
        if panel["type"] == "row":
            figure.text(0.004, 1 - (at["y"] + 0.8) / height, panel["title"], fontsize=11, weight="bold")
            continue
        above, below = (1, 0.3) if panel["type"] == "stat" else (1, 1.9)
        bottom, tall = 1 - (at["y"] + at["h"] - below) / height, (at["h"] - above - below) / height
        axes = figure.add_axes(((at["x"] + 0.8) / 24, bottom, (at["w"] - 1) / 24, tall))
        sign = _unit(panel)[1] if panel["type"] == "timeseries" else ""
        axes.set_title(f"{panel['title']}{sign and f', {sign}'}", fontsize=8, loc="left")
        axes.tick_params(labelsize=6)
        found = [
            (target["legendFormat"], labels, points)
            for target in panel["targets"]
            for labels, points in prometheus.over(chosen(target["expr"], interval), seconds)
        ]
        {"stat": _stat, "timeseries": _lines, "heatmap": _heatmap}[panel["type"]](axes, panel, found)
    figure.savefig(path)
    plt.close(figure)
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(_COLOURS_KEPT).save(path, optimize=True)


def _unit(panel):
    unit = panel["fieldConfig"]["defaults"].get("unit") or panel["options"]["yAxis"]["unit"]
    return _UNITS[unit]


def _named(legend, labels):
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return legend if len(legend) <= _LONGEST_NAME else f"…{legend[1 - _LONGEST_NAME :]}"


def _times(points):
    return [datetime.fromtimestamp(at, UTC) for at, _ in points]


def _stat(axes, panel, found):
    factor, sign = _unit(panel)
    [(_, _, points)] = found
    value = [value for _, value in points if not math.isnan(value)][-1]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    [*_, step] = [step for step in steps if step["value"] is None or value >= step["value"]]
    axes.set_facecolor(_COLOURS[step["color"]] if len(steps) > 1 else "#4a6fa5")
    axes.text(0.5, 0.45, f"{value * factor:,.4g} {sign}", size=13, color="white", ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])


def _lines(axes, panel, found):
    """Curves that are zero throughout are left out: there is no room for their names."""
    factor, _ = _unit(panel)
    found = [one for one in found if any(value > 0 for _, value in one[2])] or found[:1]
    names = [_named(legend, labels) for legend, labels, _ in found]
    values = [[0 if math.isnan(value) else value * factor for _, value in points] for _, _, points in found]
    if panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal":
        longest = max((_times(points) for _, _, points in found), key=len)
        axes.stackplot(longest, [[0] * (len(longest) - len(row)) + row for row in values], labels=names, alpha=0.7)
    else:
        for (_, _, points), row, name in zip(found, values, names, strict=True):
            axes.plot(_times(points), row, label=name, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.xaxis.set_major_locator(plt.MaxNLocator(4))
    axes.margins(x=0)
    axes.legend(
        fontsize=5.5,
        loc="upper left",
        bbox_to_anchor=(-0.05, -0.1),
        ncols=_columns(panel),
        frameon=False,
        columnspacing=1,
    )


def _columns(panel):
    return panel["gridPos"]["w"] // 2 - 1


def _short(number):
    for size, letter in ((2**20, "M"), (2**10, "k")):
        if size <= number < math.inf:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def _heatmap(axes, panel, found):
    """Buckets count all below them: what is drawn is the difference between neighbours."""
    buckets = sorted((float(labels["le"]), dict(points)) for _, labels, points in found)
    at = sorted(set().union(*(points for _, points in buckets)))
    counts = np.array([[points.get(second, 0.0) for second in at] for _, points in buckets])
    counts = np.diff(counts, axis=0, prepend=0).clip(min=0)
    axes.imshow(counts, aspect="auto", origin="lower", cmap="viridis", norm=matplotlib.colors.PowerNorm(0.5))
    used = range(0, len(buckets), max(1, len(buckets) // 8))
    axes.set_yticks(list(used), [_short(buckets[place][0]) for place in used])
    axes.set_xticks([])
