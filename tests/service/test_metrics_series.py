"""Which series `/metrics` has, what they are called, and what is shown beside the counts."""

import os
import re

import httpx
import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from wire import post

from logitd.counting.series import SERIES, Kind
from logitd.device_memory import device_memory
from logitd.settings import Settings

OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SESSIONS = "/v1/attention/sessions"


def test_every_series_is_there_and_no_request_adds_a_label(serve):
    with serve(Settings()) as url:
        httpx.get(f"{url}/v1/sample/../x?y=1")
        httpx.request("BREW", f"{url}/v1/sample")
        post(url, "/v2/models/nobody/infer", {})
        httpx.get(f"{url}{SESSIONS}/somebody")
        families = list(openmetrics_families(httpx.get(f"{url}/metrics", headers=OPENMETRICS).text))
        routes = httpx.get(f"{url}/openapi.json").json()["paths"]
    samples = {family.name: family.samples for family in families}
    for series in SERIES:
        found = samples[series.name.removesuffix("_total")]
        assert found or not series.is_shown_at_zero, f"{series.name} has no sample"
        for sample in found:
            for label, values in series.labels.items():
                assert not values or sample.labels[label] in values
            assert set(sample.labels) - {"le"} == set(series.labels)
            endpoint = sample.labels.get("endpoint", "unmatched")
            assert endpoint == "unmatched" or endpoint in routes or endpoint == "/metrics"
            assert re.fullmatch("[1-5][0-9][0-9]", sample.labels.get("code", "200"))


def test_names_follow_prometheus():
    for series in SERIES:
        assert series.name.startswith("logitd_")
        assert series.name.endswith("_total") == (series.kind is Kind.COUNTER)
        assert not re.search("(_ms|_us|_percent|_kb|_mb)(_|$)", series.name)
        assert list(series.bounds) == sorted(set(series.bounds))
    assert len({series.name.removesuffix("_total") for series in SERIES}) == len(SERIES)  # one family each


@pytest.mark.parametrize(
    ("traceparent", "is_kept"),
    [(f"00-{TRACE}-00f067aa0ba902b7-01", True), (f"00-{TRACE}-00f067aa0ba902b7-00", False), ("nonsense", False)],
)
def test_a_kept_trace_is_an_exemplar_of_openmetrics(serve, traceparent, is_kept):
    with serve(Settings()) as url:
        post(url, "/v1/sample", {"logits": [[1, 2]]}, traceparent=traceparent)
        answer = httpx.get(f"{url}/metrics", headers=OPENMETRICS)
        plain = httpx.get(f"{url}/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert plain.headers["content-type"].startswith("text/plain")
    assert TRACE not in plain.text
    found = [s for family in openmetrics_families(answer.text) for s in family.samples if s.exemplar]
    assert [s.exemplar.labels for s in found] == [{"trace_id": TRACE}] * is_kept
    for sample in found:
        assert sample.name == "logitd_request_duration_seconds_bucket"
        assert sample.exemplar.value <= float(sample.labels["le"])


def test_memory_without_a_gpu_is_that_of_the_process_and_what_it_may_have(monkeypatch, tmp_path):
    monkeypatch.setattr("logitd.device_memory._LIMITS", (tmp_path / "absent", tmp_path / "memory.max"))
    limit, machine = tmp_path / "memory.max", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for text, total_bytes in (("max\n", machine), (f"{2 * machine}\n", machine), ("123456\n", 123456)):
        limit.write_text(text)
        used, total = device_memory("native")
        assert total() == total_bytes
    before = used()
    block = np.ones(1 << 23)
    assert block.nbytes * 0.9 < used() - before < block.nbytes * 1.5
