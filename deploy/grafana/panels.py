"""Grafana panels as plain dictionaries, and their places on a grid of 24 columns."""

from collections.abc import Iterator, Sequence
from typing import Any

Panel = dict[str, Any]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_GREEN, _AMBER, _RED = "green", "orange", "red"


def query(expr: str, legend: str = "", *, form: str = "time_series", exemplars: bool = False) -> dict[str, Any]:
    """Return a target; `legend` may hold labels as {{label}}."""
    return {
        "datasource": DATASOURCE,
        "expr": expr,
        "legendFormat": legend,
        "format": form,
        "range": True,
        "exemplar": exemplars,
    }


def stat(title: str, expr: str, unit: str, description: str, amber: float | None, red: float | None) -> Panel:
    """Return one large number, coloured from two thresholds; where red is the lower one, less is worse."""
    steps: list[dict[str, Any]] = [{"color": _GREEN, "value": None}]
    if amber is not None and red is not None:
        if red < amber:
            steps = [{"color": _RED, "value": None}, {"color": _AMBER, "value": red}, {"color": _GREEN, "value": amber}]
        else:
            steps += [{"color": _AMBER, "value": amber}, {"color": _RED, "value": red}]
    defaults = {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}, "noValue": "–"}
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background" if len(steps) > 1 else "none",
        "graphMode": "area",
    }
    return _panel("stat", title, description, [query(expr)], {"defaults": defaults, "overrides": []}, options)


def lines(title: str, unit: str, description: str, *queries: dict[str, Any], stacked: bool = False) -> Panel:
    """Return curves over time."""
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    defaults = {"unit": unit, "min": 0, "custom": custom}
    return _panel("timeseries", title, description, list(queries), {"defaults": defaults, "overrides": []}, options)


def heatmap(title: str, unit: str, description: str, expr: str) -> Panel:
    """Return the buckets of a histogram over time; `expr` keeps the label le."""
    options = {
        "calculate": False,
        "yAxis": {"axisPlacement": "left", "unit": unit},
        "rowsFrame": {"layout": "le"},
        "color": {"mode": "scheme", "scheme": "Viridis", "scale": "exponential", "exponent": 0.5, "steps": 64},
        "cellGap": 1,
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True},
    }
    config = {"defaults": {"custom": {"scaleDistribution": {"type": "linear"}}}, "overrides": []}
    return _panel("heatmap", title, description, [query(expr, "{{le}}", form="heatmap")], config, options)


def placed(rows: Sequence[tuple[str, int, Sequence[Panel]]]) -> list[Panel]:
    """Give panels ids and places.

    Args:
        rows: title (empty: without a heading), height and panels of each; the panels of a row share its width, and a
            row of more than four is wrapped after each third.
    """
    return list(_placed(rows))


def _placed(rows: Sequence[tuple[str, int, Sequence[Panel]]]) -> Iterator[Panel]:
    number, y = 0, 0
    for title, height, panels in rows:
        if title:
            number += 1
            yield {
                "id": number,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            }
            y += 1
        across = len(panels) if len(panels) <= 4 or not title else 3
        width = _COLUMNS // across
        for place, panel in enumerate(panels):
            number += 1
            at = {"x": place % across * width, "y": y + place // across * height, "w": width, "h": height}
            yield {"id": number, **panel, "gridPos": at}
        y += -(-len(panels) // across) * height


def _panel(
    kind: str,
    title: str,
    description: str,
    targets: list[dict[str, Any]],
    field_config: dict[str, Any],
    options: dict[str, Any],
) -> Panel:
    named = [{"refId": chr(ord("A") + place), **target} for place, target in enumerate(targets)]
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": named,
        "fieldConfig": field_config,
        "options": options,
    }
