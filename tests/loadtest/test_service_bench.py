"""The service benchmark's own arithmetic and client. Nothing here depends on how long anything takes."""

import json
import socket
from urllib.parse import urlsplit

import pytest
from loadtest.http import budget, cases
from loadtest.http.bench import measure
from loadtest.http.claims import CLAIMS, judge
from loadtest.http.client import Load, NotAnsweredError, ask, closed_loop, connected, get, post
from loadtest.http.regions import shared
from loadtest.http.report import Figure, Report

from logitd.settings import Settings


@pytest.fixture
def address(service_url):
    place = urlsplit(service_url)
    return place.hostname, place.port


def test_every_case_of_the_service_is_answered(address):
    for case in cases.cases():
        if case.server == "logitd":
            with connected(address) as connection:
                ask(connection, case.load(address).request)


def test_a_row_in_shared_memory_is_the_row_that_is_sent(serve):
    with serve(Settings(shared_memory=True)) as url:
        place = urlsplit(url)
        there = place.hostname, place.port
        with shared(there, cases.row()) as region, connected(there) as connection:
            answer = json.loads(ask(connection, cases.in_memory(region).load(there).request))
            sent = json.loads(ask(connection, post("/v1/sample", cases.dense(1), cases.SAFETENSORS)))
    assert answer["outputs"][0]["data"] == [sent["rows"][0]["token"]]


def test_what_is_measured_is_sampled_in_both_forms_alike(address):
    with connected(address) as connection:
        bodies = [cases.dense(1), cases.head()]
        answers = [json.loads(ask(connection, post("/v1/sample", body, cases.SAFETENSORS))) for body in bodies]
    assert len({answer["rows"][0]["token"] for answer in answers}) == 1
    assert [answer["rows"][0]["exact"] for answer in answers] == [True, True]


def test_a_closed_loop_counts_answers_and_nothing_else(address):
    result = closed_loop(Load(address, get("/health/live")), 2, 0.05)
    assert result.requests == len(result.latencies_seconds) > 0
    assert result.rate == result.requests / result.seconds
    with pytest.raises(NotAnsweredError, match="404"):
        closed_loop(Load(address, get("/nothing")), 2, 0.05)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
def test_a_server_that_leaves_has_not_answered(said):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(NotAnsweredError, match="closed"):
            ask(ours, get("/"))


def test_cases_take_turns_and_claims_are_ratios_of_rounds(address):
    asked = [case for case in cases.cases() if case.server == "logitd" and case.rows == 1]
    figures = measure(asked, {"logitd": address}, 2, 0.02)
    assert [len(figure.rates) for figure in figures] == [2] * len(asked)
    verdicts = {claim.text: found for claim, found in zip(CLAIMS, judge(figures), strict=True)}
    assert verdicts["head form, over GET /health/live"].ratio.median > 0
    assert verdicts["our protocol drains, over stock uvicorn, 513 kB"].ratio is None


def test_where_the_time_of_a_request_goes_adds_up(address):
    with connected(address) as connection:
        found = {name: budget.measured(connection, request) for name, request in budget.requests().items()}
    for name, seconds in found.items():
        assert set(seconds) == {"wire", "whole"} | (set() if name.startswith("GET") else set(budget.STAGES))
        assert min(seconds.values()) >= 0
        assert seconds["whole"] == pytest.approx(sum(seconds.values()) - seconds["whole"])


def test_the_table_of_a_request_has_medians_in_microseconds():
    health = [{"wire": 1e-4, "whole": 1e-4}] * 3
    row = [{"read": one * 1e-6, "wire": 2e-4, "whole": 3e-4} for one in (10, 20, 90)]
    lines = {line.split()[0]: line.split()[1:] for line in budget.table({"GET": health, "row": row})}
    assert lines["µs"] == ["GET", "row"]
    assert (lines["read"], lines["queue"], lines["wire"]) == (["0", "20"], ["0", "0"], ["100", "200"])


def test_a_claim_is_met_by_the_median_round():
    stock, ours = (
        Figure("drain 513 kB", server, 1, 4, rates, [1.0])
        for server, rates in (("stock", [100, 100, 50]), ("protocol", [150, 170, 90]))
    )
    (found,) = [one for one in judge([stock, ours]) if one.ratio is not None]
    assert (found.ratio.median, found.met) == (1.7, True)


def test_a_report_is_kept(tmp_path):
    report = Report({"commit": "x"}, {"triton": "absent"}, [Figure("GET", "logitd", 1, 4, [3.0, 1.0, 2.0], [0.001])])
    kept = json.loads(report.keep(tmp_path / "a.json").read_text())
    assert kept["figures"][0]["requests_per_second"] == 2.0
    assert kept["peers"] == {"triton": "absent"}
