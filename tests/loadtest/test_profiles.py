"""What load profiles are made of: schedules, demands, the knee. Nothing here depends on time."""

import pytest
from loadtest.http.profiles import profile
from loadtest.http.profiles.knee import Step, knee, of_steps
from loadtest.http.profiles.profile import load, read
from loadtest.http.profiles.schedule import Phase, cycle
from loadtest.http.profiles.slo import METRICS, parsed, shown


def test_requests_are_due_evenly_whatever_becomes_of_them():
    phase = Phase("steady", 2.0, 4.0)
    assert list(phase.due_seconds()) == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]
    assert phase.requests == 8


def test_a_cycle_has_every_kind_as_often_as_it_weighs_and_is_the_same_every_time():
    names = cycle({"head": 3, "json": 1}, seed=1)
    assert sorted(names) == ["head", "head", "head", "json"]
    assert names == cycle({"head": 3, "json": 1}, seed=1)
    with pytest.raises(ValueError, match="weights of at least 1"):
        cycle({"head": 0}, 1)


@pytest.mark.parametrize(
    ("text", "metric", "limit", "scope"),
    [
        ("p99=50ms", "p99", 0.05, None),
        ("p99.9=1.5s", "p99.9", 1.5, None),
        ("max=800us", "max", 8e-4, None),
        ("errors=0.1%", "errors", 0.001, None),
        ("goodput=90%", "goodput", 0.9, None),
        ("knee=300", "knee", 300.0, None),
        ("rate=300/s", "rate", 300.0, None),
        ("long attention:p99=2s", "p99", 2.0, "long attention"),
    ],
)
def test_a_demand_is_read(text, metric, limit, scope):
    slo = parsed(text)
    assert (slo.metric, slo.limit, slo.scope) == (metric, pytest.approx(limit), scope)


@pytest.mark.parametrize(
    "text", ["p99", "p99=", "p99=50", "p99=50%", "errors=5ms", "speed=1s", "head:knee=1", "p99=-5ms", "goodput=90/s"]
)
def test_what_is_no_demand_is_refused_in_its_own_words(text):
    with pytest.raises(ValueError, match=text.replace("%", ".")):
        parsed(text)


def test_a_demand_knows_its_direction_and_what_was_not_measured_breaks_it():
    assert parsed("p99=50ms").met(0.05)
    assert not parsed("p99=50ms").met(0.051)
    assert parsed("goodput=90%").met(0.9)
    assert not parsed("goodput=90%").met(0.89)
    assert not any(parsed(f"{name}=1{unit}").met(None) for name, (unit, _) in METRICS.items())
    assert parsed("after:p99=50ms").text == "after:p99 ≤ 50 ms"
    assert [shown("p99", 0.0123), shown("p99", 2.5), shown("errors", 0.001), shown("knee", 1234)] == [
        "12.3 ms",
        "2.50 s",
        "0.1 %",
        "1,234/s",
    ]


def test_the_knee_is_the_last_step_before_the_first_that_breaks():
    slos = of_steps([parsed("p99=100ms"), parsed("goodput=98%"), parsed("knee=1"), parsed("20%:errors=1%")])
    assert [slo.name for slo in slos] == ["p99", "goodput"]
    steps = [
        Step(rate, {"p99": p99, "goodput": goodput})
        for rate, p99, goodput in ((10, 0.01, 1.0), (20, 0.1, 0.98), (30, 0.02, 0.97), (40, 0.01, 1.0))
    ]
    assert knee(steps, slos) == 20
    assert knee(steps[:2], slos) == 20
    assert knee(steps[2:], slos) is None
    assert [slo.metric for slo in steps[2].broken(slos)] == ["goodput"]


@pytest.mark.parametrize("name", profile.names())
def test_every_profile_says_what_it_demands(name):
    found = load(name)
    assert found.slos
    assert found.text
    assert found.seconds > 0


def test_the_profiles_of_the_documentation_are_there():
    assert profile.names() == ["mixed", "overload", "ramp", "soak", "spike", "steady"]
    assert load("ramp").stepwise


def test_a_profile_is_changed_by_flags():
    steady = load("steady")
    assert steady.lasting(3.0).seconds == pytest.approx(3.0)
    fixed = steady.at_rate(25.0)
    assert not fixed.needs_capacity
    assert fixed.plans[0].phase(None).rate == 25.0
    assert steady.plans[0].phase(100.0).rate == 50.0
    strict = steady.demanding([parsed("p99=1ms"), parsed("head:p50=2ms")])
    limits = {slo.name: slo.limit for slo in strict.slos}
    assert limits["p99"] == pytest.approx(0.001)
    assert len(strict.slos) == len(steady.slos) + 1
    assert {slo.metric for slo in steady.slos} - {slo.metric for slo in steady.without("probes").slos} == {"probes"}
    with pytest.raises(ValueError, match="several rates"):
        load("spike").at_rate(5.0)
    with pytest.raises(ValueError, match="no such kind or phase: nobody:p99"):
        steady.demanding([parsed("nobody:p99=1ms")])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"text": "", "mix": {"head": 1}, "phases": [{"name": "a", "seconds": 1}]}, "either a rate or a load"),
        ({"text": "", "mix": {}, "phases": [], "colour": 1}, "unknown colour"),
        ({"text": "", "mix": {}, "phases": [], "ramp": {"loads": []}}, "seconds"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(content, words):
    with pytest.raises((ValueError, TypeError), match=words):
        read("mine", content)


def test_an_unknown_profile_is_told_what_there_is():
    with pytest.raises(ValueError, match="steady"):
        load("nothing")
