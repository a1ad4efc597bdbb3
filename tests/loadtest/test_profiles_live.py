"""Load profiles against a real service: every kind of request, and whole runs."""

import asyncio
import json
from itertools import count, pairwise

import httpx
from loadtest.http.profiles import __main__ as command
from loadtest.http.profiles import attending, bodies, catalogue, judging, real, refusals, sampling
from loadtest.http.profiles import run as running
from loadtest.http.profiles.connection import Pool
from loadtest.http.profiles.exposition import samples
from loadtest.http.profiles.generate import Generator
from loadtest.http.profiles.kinds import Kind, single
from loadtest.http.profiles.prepare import kinds_of
from loadtest.http.profiles.prepare import running as prepared
from loadtest.http.profiles.profile import load, read
from loadtest.http.profiles.record import Record, Verdict
from loadtest.http.profiles.requests import Wire
from loadtest.http.profiles.run import Client, run
from loadtest.http.profiles.schedule import Phase
from loadtest.http.profiles.target import Target
from prometheus_client.parser import text_string_to_metric_families


def test_every_kind_of_request_is_answered_as_it_should_be(service_url):
    rows, wire = real.rows()[:2], Wire()
    slow = {"slow body", "long attention", "linear attention", "comparison"}  # seconds; `make loadtest PROFILE=mixed`
    found = [*sampling.kinds(wire, rows), *judging.kinds(wire, rows), *attending.kinds(wire), *refusals.kinds(wire)]
    kinds = [kind for kind in found if kind.name not in slow]
    record = Record([kind.name for kind in kinds])

    async def scenario():
        pool = Pool(Target.of(service_url), 8)
        one = Generator(pool, kinds, range(len(kinds)), record, 30.0)
        for _ in range(2):
            await one.phase(Phase("each once", 0.01, 100.0 * len(kinds)))
            await one.drained()
        pool.close()
        await asyncio.sleep(0)

    asyncio.run(scenario())
    columns = record.columns()
    wrong = columns.where(columns.verdict != Verdict.EXPECTED)
    named = [(record.kinds[kind], int(code)) for kind, code in zip(wrong.kind, wrong.code, strict=True)]
    assert named == []
    assert set(columns.kind.tolist()) == set(range(len(kinds)))


def test_the_mixed_profile_has_every_kind_there_is():
    assert set(load("mixed").mix) == set(catalogue.kinds(Wire(), real.rows()[:2], "region"))


def test_a_service_without_shared_memory_is_asked_the_rest(service_url, capsys):
    mixed = load("mixed")
    with kinds_of(mixed, prepared(service_url, service_url, None)) as (chosen, kinds):
        assert set(mixed.mix) - set(chosen.mix) == {"shared memory"}
        assert [kind.name for kind in kinds] == list(chosen.mix)
    assert "without shared memory" in capsys.readouterr().err


def test_what_the_service_exposes_is_read_as_prometheus_reads_it(service_url):
    text = httpx.get(f"{service_url}/metrics").text
    theirs = {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name.startswith("logitd_")
    }
    assert len(theirs) > 500
    assert samples(text, ("logitd_",)) == theirs


def climbed(service_url, kind, loads, **demands):
    """What comes of a ramp of steps of 0.1 s; load 1 is 100 requests a second."""
    steps = {"loads": loads, "seconds": 0.1, "settle_seconds": 0.0}
    ramp = read("ramp", {"text": "", "mix": {kind.name: 1}, "ramp": steps, "slo": demands})
    return asyncio.run(run(ramp, [kind], Client(Target.of(service_url), None), 100.0, lambda *_: None))


def test_a_ramp_stops_where_it_breaks(service_url):
    kind = single("reading", [Wire().get("/health/ready")])
    outcome = climbed(service_url, kind, [0.5, 1.0, 1.1, 1.2], max="1us", knee="1/s")
    assert [step.rate for step in outcome.steps] == [50.0, 100.0]  # one more than needed
    assert [span.name for span in outcome.spans] == ["50%", "50% again", "100%"]
    assert outcome.knee is None
    assert [(slo.name, slo.met(value)) for slo, value in outcome.judged()] == [("knee", False)]


def test_a_step_that_breaks_only_once_is_no_knee(service_url, monkeypatch):
    monkeypatch.setattr(running, "_WARM_SECONDS", 0.0)  # so that the first requests are the first step's
    numbers = count()

    async def talk(ask):
        wanted = 404 if 5 <= next(numbers) < 15 else 200  # the second step has these ten
        await asyncio.sleep(0.15)  # longer than a step
        await ask(Wire().get("/health/ready"), frozenset({wanted}))

    outcome = climbed(service_url, Kind("reading", talk), [0.5, 1.0, 1.5], goodput="100%")
    assert [span.name for span in outcome.spans] == ["50%", "100%", "100% again", "150%"]
    assert [(step.rate, step.values["goodput"]) for step in outcome.steps] == [(50.0, 1.0), (100.0, 1.0), (150.0, 1.0)]
    assert outcome.knee == 150.0
    columns = outcome.columns
    for span, after in pairwise(outcome.spans):
        assert (columns.due + columns.latency)[columns.phase == span.place].max() <= after.begins + 1e-6  # drained


def test_an_interrupted_run_tells_what_it_had(service_url):
    profile = load("steady").at_rate(100.0)  # for half a minute
    kinds = [single(name, [Wire().get("/health/ready")]) for name in profile.mix]

    async def scenario():
        told = asyncio.Event()
        one = run(profile, kinds, Client(Target.of(service_url), None), None, lambda *_: told.set())
        task = asyncio.create_task(one)
        await told.wait()
        task.cancel()
        return await task

    outcome = asyncio.run(scenario())
    assert outcome.cut_short
    [span] = outcome.spans
    assert span.seconds < 30
    assert 0 < len(outcome.record) < 3000


def test_a_whole_run_leaves_a_table_a_file_and_a_page(service_url, tmp_path, capsys):
    flags = [
        "--seconds",
        "0.5",
        "--rate",
        "40",
        "--out",
        str(tmp_path),
        "--url",
        service_url,
        "--admin-url",
        service_url,
    ]
    easy = ["--slo", "p99=30s", "--slo", "probes=30s", "--slo", "errors=50%", "--slo", "goodput=1%"]
    assert command.main(["steady", *flags, *easy]) == 0
    assert command.main(["steady", *flags, *easy, "--slo", "head:p99=1us"]) == 1
    told = capsys.readouterr()
    assert "BROKEN    head:p99" in told.out
    assert "\r" not in told.err
    report = json.loads((tmp_path / "steady.json").read_text())
    assert report["all"]["requests"] == report["all"]["expected"] > 0
    assert report["about"]["version"]
    page = (tmp_path / "steady.html").read_text()
    assert "Entropy of rows" in page
    assert "Queue" in page


def test_what_cannot_be_run_is_one_line(tmp_path, capsys):
    nobody = ["--url", "http://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1"]
    assert command.main(["steady", *nobody, "--out", str(tmp_path)]) == 2
    assert command.main(["steady", *nobody, "--out", "/dev/null/reports"]) == 2  # before a run, not after it
    assert command.main(["nothing"]) == 2
    assert command.main(["steady", "--slo", "p99=fast"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("loadtest: ") for line in lines] == [True] * 4
    assert "/dev/null" in lines[1]


def test_bodies_for_other_tools_are_what_the_service_takes(service_url, tmp_path, capsys):
    assert bodies.main([str(tmp_path)]) == 0
    assert "row.npy" in capsys.readouterr().out
    tokens = {}
    for path in sorted(tmp_path.glob("*.safetensors")):
        answer = httpx.post(
            f"{service_url}/v1/sample",
            content=path.read_bytes(),
            headers={"content-type": "application/vnd.safetensors"},
        )
        tokens[path.stem] = [row["token"] for row in answer.json()["rows"]]
    assert tokens["head"] == tokens["row"] == tokens["batch"][:1]
    assert len(tokens["batch"]) == 8
