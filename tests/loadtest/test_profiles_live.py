"""Load profiles against a real service: every kind of request, and whole runs."""

import asyncio
import json

import httpx
from loadtest.http.profiles import __main__ as command
from loadtest.http.profiles import attending, bodies, real, refusals, sampling
from loadtest.http.profiles.connection import Pool
from loadtest.http.profiles.generate import Generator
from loadtest.http.profiles.kinds import single
from loadtest.http.profiles.profile import load, read
from loadtest.http.profiles.record import Record, Verdict
from loadtest.http.profiles.requests import Wire
from loadtest.http.profiles.run import Client, run
from loadtest.http.profiles.schedule import Phase
from loadtest.http.profiles.target import Target


def test_every_kind_of_request_is_answered_as_it_should_be(service_url):
    rows, wire = real.rows()[:2], Wire()
    slow = {"slow body", "long attention", "linear attention", "comparison"}  # seconds; `make loadtest PROFILE=mixed`
    found = [*sampling.kinds(wire, rows), *attending.kinds(wire), *refusals.kinds(wire)]
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


def test_a_ramp_stops_where_it_breaks(service_url):
    ramp = read(
        "ramp",
        {
            "text": "",
            "mix": {"reading": 1},
            "ramp": {"loads": [0.5, 1.0, 1.0, 1.0], "seconds": 0.1, "settle_seconds": 0.0},
            "slo": {"max": "1us", "knee": "1/s"},
        },
    )
    kinds = [single("reading", [Wire().get("/health/ready")])]
    client = Client(Target.of(service_url), None)
    outcome = asyncio.run(run(ramp, kinds, client, 100.0, lambda *_: None))
    assert [step.rate for step in outcome.steps] == [50.0, 100.0]  # one more than needed
    assert outcome.knee is None
    assert [(slo.name, slo.met(value)) for slo, value in outcome.judged()] == [("knee", False)]


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


def test_what_cannot_be_run_is_one_line(capsys):
    assert command.main(["steady", "--url", "http://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1"]) == 2
    assert command.main(["nothing"]) == 2
    assert command.main(["steady", "--slo", "p99=fast"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("loadtest: ") for line in lines] == [True] * 3


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
