"""What is made of the requests of a run: figures, and what is judged by them. Nothing here depends on time."""

import math
from dataclasses import replace

import numpy as np
import pytest
from loadtest.http.profiles.figures import figures, growth, percentiles, timeline, whole
from loadtest.http.profiles.profile import load
from loadtest.http.profiles.record import NO_ANSWER, Record, Verdict, verdict
from loadtest.http.profiles.run import Outcome
from loadtest.http.profiles.schedule import Phase
from loadtest.http.profiles.slo import parsed, shown
from loadtest.http.profiles.watch import Watch


def recorded(*requests, rate=10.0, settle=0.0, seconds=10.0):
    """A record of requests (due, latency, code) of one kind in one phase, of which 200 is expected."""
    record = Record(["head"])
    place = record.begin(Phase("all", seconds, rate, settle), 0.0)
    for due, latency, code in requests:
        record.add(due, latency, 0.001, code, 0, place, verdict(code, frozenset({200})))
    return record


def test_percentiles_are_values_that_occurred():
    found = percentiles(np.arange(1, 1001, dtype=np.float64))
    assert found == {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p99.9": 999}
    assert percentiles(np.array([])) == {}


def test_shedding_is_no_error_and_nobody_answering_is_one():
    assert verdict(200, frozenset({200})) is Verdict.EXPECTED
    assert verdict(422, frozenset({422})) is Verdict.EXPECTED
    assert [verdict(code, frozenset({200})) for code in (429, 503)] == [Verdict.SHED] * 2
    assert [verdict(code, frozenset({200})) for code in (NO_ANSWER, 422, 500, 504)] == [Verdict.ERROR] * 4
    assert verdict(200, frozenset({422})) is Verdict.ERROR


def test_figures_are_of_the_judged_time_and_latency_of_what_was_answered_as_expected():
    record = recorded((0.5, 9.0, 200), (1.0, 0.1, 200), (2.0, 0.2, 200), (3.0, 5.0, 504), (4.0, 0.3, 429), settle=1.0)
    found = figures(whole(record), record.spans, None)
    assert (found.requests, found.expected, found.shed, found.errors) == (4, 2, 1, 1)
    assert found.latency_seconds["max"] == pytest.approx(0.2)
    assert found.value("errors") == found.value("shed") == 0.25
    assert found.value("goodput") == 0.5
    assert found.value("rate") == pytest.approx(2 / 9)
    assert found.codes == {200: 2, 429: 1, 504: 1}
    assert found.lag_seconds == pytest.approx(0.001)


def test_goodput_is_over_what_the_server_could_have_answered():
    requests = [(float(place) / 10, 0.1, 200 if place % 3 == 0 else 429) for place in range(99)]
    record = recorded(*requests, rate=10.0)
    assert figures(whole(record), record.spans, 5.0).value("goodput") == pytest.approx(33 / 49.5)
    assert figures(whole(record), record.spans, 50.0).value("goodput") == pytest.approx(33 / 99)


def test_a_closed_loop_is_in_no_figure():
    record = recorded((1.0, 0.1, 200))
    place = record.begin(Phase("closed loop", 4.0, 0.0), 10.0)
    record.add(11.0, 7.0, 0.0, 200, 0, place, Verdict.EXPECTED)
    assert len(whole(record)) == 1


def test_growth_compares_the_last_third_with_the_first():
    record = recorded(*((float(place), 0.1 if place < 60 else 0.3, 200) for place in range(90)), seconds=90.0)
    assert growth(whole(record), record.spans) == pytest.approx(3.0)
    assert growth(whole(recorded()), []) is None


def test_growth_of_a_kind_is_of_its_requests_alone():
    record = Record(["head", "json"])
    place = record.begin(Phase("all", 90.0, 10.0), 0.0)
    for kind, late in ((0, 0.1), (1, 0.4)):
        for due in range(90):
            record.add(float(due), 0.1 if due < 60 else late, 0.0, 200, kind, place, Verdict.EXPECTED)
    profile = replace(load("steady"), slos=tuple(parsed(f"{kind}:growth=150%") for kind in ("head", "json")))
    judged = Outcome(profile, record).judged()
    assert [(slo.name, value) for slo, value in judged] == [
        ("head:growth", pytest.approx(1.0)),
        ("json:growth", pytest.approx(4.0)),
    ]


def test_a_phase_is_judged_by_its_own_requests():
    record = recorded((1.0, 0.1, 200), (2.0, 0.1, 200))
    after = record.begin(Phase("after", 10.0, 10.0), 10.0)
    record.add(11.0, 0.1, 0.0, 429, 0, after, Verdict.SHED)
    outcome = Outcome(load("steady"), record)
    assert [outcome.of(scope).requests for scope in (None, "all", "after", "head")] == [3, 2, 1, 3]
    assert [outcome.of(scope).value("shed") for scope in ("all", "after")] == [0.0, 1.0]
    assert outcome.of("after").seconds == 10.0


def test_a_probe_without_an_answer_breaks_the_demand_on_probes():
    def judged(*seconds):
        profile = replace(load("steady"), slos=(parsed("probes=100ms"),))
        [(slo, value)] = Outcome(profile, recorded(), seen=Watch([], list(seconds))).judged()
        return slo.met(value), shown("probes", value)

    assert judged(0.001, 0.1) == (True, "100 ms")
    assert judged(0.001, math.inf) == (False, "no answer")
    assert judged() == (False, "not measured")


def test_a_course_has_rates_that_add_up_and_gaps_where_nothing_was_answered():
    record = recorded(*((0.1 * place, 0.01, 200 if place < 50 else 429) for place in range(100)))
    course = timeline(whole(record))
    width = course.at[1] - course.at[0]
    assert sum(course.rates["due"]) * width == pytest.approx(100)
    assert sum(course.rates["shed"]) * width == pytest.approx(50)
    assert course.latency_ms["p99"][0] == pytest.approx(10)
    assert np.isnan(course.latency_ms["p99"][-1])
    assert set(course.codes) == {200, 429}
