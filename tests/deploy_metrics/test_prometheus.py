"""A real Prometheus scrapes the service under load: every expression of dashboard and rules is answered."""

import math
import subprocess
import time

import httpx
import picture
import pytest
from mixed_load import mixed_load
from prometheus_server import address
from running import until
from shipped import ALERTS, RECORDED, ROOT, expressions

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]
_LOAD_SECONDS, _INTERVAL = 60, "5s"
_BUSY = {"LogitdLoopLag", "LogitdScrapeSlow", "LogitdQueueWaitHigh"}  # the load shares the service's processors


@pytest.fixture(scope="module")
def loaded(service, watching):
    """Prometheus while the service is under mixed load."""
    watching.watch(address(service.admin))
    until(lambda: watching.up(1))
    with mixed_load(service.url):
        time.sleep(_LOAD_SECONDS)
        yield watching


@pytest.mark.parametrize(("panel", "legend", "expr"), list(expressions(_INTERVAL)))
def test_every_panel_has_data(loaded, panel, legend, expr):
    found = loaded.over(expr, _LOAD_SECONDS - 10)
    assert any(not math.isnan(value) for _, points in found for _, value in points), f"{panel}, {legend}: no data"


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_series_has_data(loaded, name):
    assert any(not math.isnan(value) for _, value in loaded.now(name))


def test_every_rule_is_evaluated(loaded):
    rules = [rule for group in loaded.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {*ALERTS, *RECORDED}
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []


def test_load_alone_wakes_nobody(loaded):
    assert set(loaded.alerts()) <= _BUSY


def test_exemplars_lead_to_traces(loaded):
    found = loaded.ask(
        "query_exemplars",
        query="logitd_request_duration_seconds_bucket",
        start=time.time() - _LOAD_SECONDS,
        end=time.time(),
    )
    traces = {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}
    assert traces
    assert traces <= {f"{number:032x}" for number in range(1, 5)}


def test_the_lint_of_metrics_is_clean(loaded, service):
    told = httpx.get(f"{service.admin}/metrics").content
    ran = subprocess.run(["promtool", "check", "metrics"], input=told, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()


def test_the_dashboard_is_drawn(loaded):
    path = ROOT / "build" / "dashboard.png"
    path.parent.mkdir(exist_ok=True)
    picture.draw(loaded, path, _LOAD_SECONDS - 5, _INTERVAL)
    assert 50_000 < path.stat().st_size < 300_000
