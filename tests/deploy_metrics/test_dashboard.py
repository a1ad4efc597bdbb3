"""The dashboard is what its script writes, whole, and in order."""

import itertools
import json
import subprocess
import sys

import pytest
import yaml
from shipped import DASHBOARD, PROMETHEUS, ROOT, panels

GRAFANA = ROOT / "deploy" / "grafana"


def test_the_file_is_fresh():
    script = GRAFANA / "dashboard.py"
    ran = subprocess.run([sys.executable, script], capture_output=True, check=True)
    assert ran.stdout.decode() == DASHBOARD.read_text(), f"stale: run `make docs`, which runs {script.name}"


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows(panel):
    assert panel["title"]
    assert panel["description"]
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults.get("unit") or panel["options"]["yAxis"]["unit"]
    assert panel["targets"]
    for target in panel["targets"]:
        assert "$job" in target["expr"], "the choice of job counts for every panel"
        assert "rate(" not in target["expr"] or "[$__rate_interval]" in target["expr"]
    assert all(target["legendFormat"] for target in panel["targets"]) or panel["type"] == "stat"


def test_panels_have_numbers_and_places_of_their_own():
    everything = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken = set()
    for panel in everything:
        at = panel["gridPos"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_page_on_the_dashboard_names_every_panel():
    page = (ROOT / "docs" / "dashboard.md").read_text()
    for panel in panels():
        assert f"*{panel['title']}*" in page


def test_the_runbook_names_panels_that_exist():
    titles = {panel["title"] for panel in panels()}
    page = (ROOT / "docs" / "alerts.md").read_text()
    named = [part.split("*")[0] for part in page.replace("**", "").split("anel *")[1:]]
    assert named
    assert set(named) <= titles


def test_prometheus_and_grafana_agree_on_the_interval():
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
