"""A report as a page: what the server told, as lines, on a page that loads nothing."""

import math
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from loadtest.http.profiles.axis import Axis, number
from loadtest.http.profiles.exposition import increase, key, labelled, quantiles, samples
from loadtest.http.profiles.knee import STEP_METRICS, Step
from loadtest.http.profiles.page import page
from loadtest.http.profiles.plots import charts
from loadtest.http.profiles.profile import load
from loadtest.http.profiles.record import Record, Verdict
from loadtest.http.profiles.report import content, written
from loadtest.http.profiles.run import Outcome
from loadtest.http.profiles.schedule import Phase
from loadtest.http.profiles.svg import Chart, Line, drawn
from loadtest.http.profiles.terminal import table
from loadtest.http.profiles.watch import ENTROPY, QUEUE_ROWS, STAGES, Reading, Watch

EXPOSITION = """# HELP logitd_entropy_nats Entropy.
logitd_entropy_nats_bucket{le="1.0",when="after_truncation"} %d
logitd_entropy_nats_bucket{when="after_truncation",le="2.0"} %d
logitd_entropy_nats_bucket{when="after_truncation",le="+Inf"} %d
logitd_queue_rows 7.0
logitd_stage_duration_seconds_sum{stage="queue"} %d
logitd_stage_duration_seconds_count{stage="queue"} %d
python_gc_objects 1.0
"""


def reading(at, *counts):
    return Reading(at, samples(EXPOSITION % counts, ("logitd_",)))


@pytest.fixture
def outcome():
    """A run of ten seconds, half of it turned away."""
    record = Record(["head", "<json>"])
    place = record.begin(Phase("steady", 10.0, 10.0), 0.0)
    for count in range(100):
        shed = count % 2
        record.add(count / 10, 0.01, 0.0, 429 if shed else 200, count % 2, place, Verdict(shed))
    seen = Watch([reading(1.0, 0, 0, 0, 0, 0), reading(2.0, 4, 8, 8, 6, 3)], [0.001, 0.002])
    return Outcome(load("steady"), record, 10.0, seen)


def test_a_histogram_between_two_readings_has_the_quantiles_of_promql():
    before, after = reading(0.0, 5, 5, 5, 0, 0).found, reading(1.0, 9, 13, 15, 0, 0).found
    labels = {"when": "after_truncation"}
    found = quantiles(before, after, ENTROPY, labels, (0.2, 0.5, 0.6, 0.9))
    assert found == [0.5, pytest.approx(1.25), pytest.approx(1.5), 2.0]
    assert math.isnan(quantiles(after, after, ENTROPY, labels, (0.5,))[0])
    assert math.isnan(quantiles(before, after, "nothing", {}, (0.5,))[0])


def test_samples_are_known_by_their_labels_in_any_order():
    found = reading(0.0, 1, 2, 3, 4, 5).found
    assert found[key(f"{ENTROPY}_bucket", when="after_truncation", le="1.0")] == 1
    assert labelled(found, f"{STAGES}_sum", "stage") == {"queue"}
    assert not any(name.startswith("python") for name, _ in found)


def test_a_counter_that_fell_was_started_anew():
    one = key("logitd_requests_total")
    assert increase({one: 5.0}, {one: 8.0}, [one]) == 3
    assert increase({one: 5.0}, {one: 2.0}, [one]) == 2
    assert increase({}, {one: 2.0}, [one]) == 2


def test_a_watch_tells_gauges_rates_and_means():
    seen = Watch([reading(1.0, 0, 0, 0, 0, 0), reading(3.0, 4, 8, 8, 6, 3)])
    assert seen.gauge(QUEUE_ROWS) == ([1.0, 3.0], [7.0, 7.0])
    assert seen.means(STAGES, "stage") == ([2.0], {"queue": [2.0]})
    assert seen.rates(f"{STAGES}_count", "stage") == ([2.0], {"queue": [1.5]})
    assert math.isnan(seen.gauge("nothing")[1][0])


@pytest.mark.parametrize(
    ("values", "log", "ends", "ticks"),
    [
        ([3.0, 97.0], False, (0.0, 100.0), [0, 20, 40, 60, 80, 100]),
        ([0.0], False, (0.0, 1.0), [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ([-1.0, 1.0], False, (-1.0, 1.0), [-1, -0.5, 0, 0.5, 1.0]),
        ([3.0, 30.0], True, (2.0, 50.0), [2, 5, 10, 20, 50]),
        ([7.0], True, (2.0, 20.0), [2, 5, 10, 20]),
        ([], True, (1.0, 2.0), [1, 2]),
    ],
)
def test_an_axis_is_round(values, log, ends, ticks):
    axis = Axis.rounded(values, 0, 100, log)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert axis.ticks() == pytest.approx(ticks)
    assert (axis.place(axis.low), axis.place(axis.high)) == (0, 100)


def test_numbers_at_an_axis_are_short():
    assert [number(value) for value in (0.0, 0.5, 12000.0, 2e-5, 3e7)] == ["0", "0.5", "12,000", "2e-05", "3e+07"]


def test_a_gap_breaks_a_line_and_a_lone_point_is_a_dot():
    line = Line("p99", [0, 1, 2, 3, 4], [1.0, 2.0, math.nan, 3.0, math.nan])
    chart = Chart("Latency", "seconds", "ms", [line])
    root = ElementTree.fromstring(drawn(chart))
    [path] = [one.get("d") for one in root if one.get("class") == "line c0"]
    assert re.fullmatch(r"M[\d. ]+L[\d. ]+M([\d. ]+)M\1h0", path)
    assert Chart("", "", "", [Line("", [0], [math.nan])]).empty
    assert Chart("", "", "", [Line("", [1], [0.0])], log_y=True).empty


def test_charts_show_what_was_recorded_and_what_the_server_told(outcome):
    titles = {chart.title for chart in charts(outcome)}
    assert {"Latency, from when a request was due", "Requests", "Queue", "Entropy of rows"} <= titles
    assert "Goodput over what was offered" not in titles
    assert "Memory of the server" not in titles  # a server that does not tell


def test_a_ramp_shows_its_knee():
    steps = [Step(10.0, dict.fromkeys(STEP_METRICS, 0.01) | {"goodput": 1.0}), Step(20.0, dict.fromkeys(STEP_METRICS))]
    ramp = Outcome(load("ramp"), Record(["head"]), 15.0, steps=steps)
    [goodput, latency] = [chart for chart in charts(ramp) if "over what was offered" in chart.title]
    assert [list(line.ys) for line in goodput.lines] == [[10.0, 0.0], [10.0, 20.0]]
    assert goodput.marks == latency.marks == [(10.0, "knee")]
    report = content(ramp, {})
    rule = "the last step before the first that twice breaks one of: p99 ≤ 100 ms, goodput ≥ 98 %"
    assert f"knee      10 requests/s: {rule}" in table(report)
    assert f"knee: {rule}" in page(report, charts(ramp))


class References(HTMLParser):
    """Collects what a page would load, and what it would run."""

    def __init__(self):
        super().__init__()
        self.found, self.tags = [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.found += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]


def test_the_page_loads_nothing_and_runs_nothing(outcome):
    text = page(content(outcome, {"server": "<b>http://127.0.0.1</b>"}), charts(outcome))
    parser = References()
    parser.feed(text)
    assert parser.found == ["data:,"]
    assert not {"script", "iframe", "object", "embed", "b", "json"} & parser.tags
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "&lt;json&gt;" in text
    assert text.count("<svg") == len(charts(outcome))


def test_the_table_and_the_file_say_the_same(outcome, tmp_path):
    report = content(outcome, {})
    assert report["held"] is False  # half was turned away
    lines = "\n".join(table(report))
    assert "BROKEN    goodput ≥ 99 %: 50 %" in lines
    assert "held      p99 ≤ 100 ms: 10 ms" in lines
    written(report, tmp_path / "steady.json")
    text = (tmp_path / "steady.json").read_text()
    assert "NaN" not in text
    assert '"goodput": 0.5' in text
