"""Alerts, their runbook and their unit tests belong together, and name series that exist."""

import re

import httpx
import pytest
import yaml
from shipped import ALERTS, PROMETHEUS, RECORDED, ROOT, expressions, series_of

RUNBOOK = (ROOT / "docs" / "alerts.md").read_text()
CASES = [
    case["name"]
    for path in sorted((PROMETHEUS / "tests").glob("*.yml"))
    for case in yaml.safe_load(path.read_text())["tests"]
]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_and_what_to_do(name):
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"
    section = RUNBOOK.partition(f"## {name}\n")[2].partition("\n## ")[0]
    assert section.lower().startswith(rule["labels"]["severity"]), "the runbook's first word is the severity"
    assert "\n- " in section, "the runbook says what to do"


def test_the_runbook_has_the_alerts_and_no_others():
    assert re.findall(r"^## (.*)", RUNBOOK, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_unit_test_that_fires_and_one_that_does_not(name):
    assert any(case.startswith(f"{name} fires ") for case in CASES)
    assert any(case.startswith(f"{name} stays silent ") for case in CASES)


def test_what_is_recorded_is_what_is_used():
    readers = [RUNBOOK, *(rule["expr"] for rule in ALERTS.values()), *RECORDED.values()]
    used = {name for reader in readers for name in re.findall(r"\w+:logitd_\w+:\w+", reader)}
    assert used == set(RECORDED)


@pytest.mark.parametrize("choice", ["reason=~", "endpoint!~", "code!~"])
def test_dashboard_and_rules_mean_the_same_by_traffic_errors_and_shedding(choice):
    def chosen(asked):
        return set(re.findall(f'{choice}"([^"]+)"', " ".join(asked)))

    [recorded] = chosen(RECORDED.values())
    assert chosen(expr for _, _, expr in expressions("1m")) == {recorded}


def test_every_series_that_is_asked_for_exists(service_url):
    told = httpx.get(f"{service_url}/metrics").text
    families = re.findall(r"^# TYPE (\w+) (\w+)", told, re.MULTILINE)
    exist = {
        name + suffix
        for name, kind in families
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }
    asked = [rule["expr"] for rule in ALERTS.values()] + list(RECORDED.values())
    asked += [expr for _, _, expr in expressions("1m")]
    for expr in asked:
        assert series_of(expr) <= exist, expr


def test_the_reasons_of_shedding_exist(service_url):
    told = httpx.get(f"{service_url}/metrics").text
    [reasons] = re.findall(r'reason=~"([^"]+)"', RECORDED["job:logitd_shed:ratio_rate5m"])
    for reason in reasons.split("|"):
        assert f'logitd_requests_rejected_total{{reason="{reason}"}}' in told
