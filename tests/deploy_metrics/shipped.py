"""What deploy/ ships for Prometheus and Grafana, as Python objects."""

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "logitd.json"
_CHOSEN = {"$job": ".*", "$instance": ".*"}


def rules(name):
    """The rules of a file, without their groups."""
    document = yaml.safe_load((PROMETHEUS / name).read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
RECORDED = {rule["record"]: rule["expr"] for rule in rules("recording.yml")}


def panels():
    """The panels of the dashboard that show something."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions(interval):
    """Every expression of the dashboard with all replicas chosen: (panel, legend, PromQL)."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["legendFormat"], chosen(target["expr"], interval)


def chosen(expr, interval):
    """PromQL with the dashboard's variables filled in."""
    for variable, value in _CHOSEN.items():
        expr = expr.replace(variable, value)
    return expr.replace("$__rate_interval", interval)


def series_of(expr):
    """The names of the service's own series in an expression."""
    return set(re.findall(r"(?<![:\w])logitd_\w+", expr))


def shortened(name, durations, hold="1s"):
    """A rule file for a run of seconds: the same expressions over shorter times.

    Args:
        durations: shipped duration -> one that takes its place, in windows and offsets alike.
        hold: `for` of every alert that has one.
    """
    document = yaml.safe_load((PROMETHEUS / name).read_text())
    for group in document["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"(\[|offset )(\d+[smh])", lambda found: found[1] + durations[found[2]], rule["expr"])
            if "for" in rule:
                rule["for"] = hold
    return yaml.safe_dump(document, sort_keys=False)
