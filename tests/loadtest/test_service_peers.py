"""What is measured beside the service. No peer needs to be installed; nothing depends on how long anything takes."""

import json
import os
import sys
import time
from functools import partial
from urllib.parse import urlsplit

import numpy as np
import pytest
from loadtest.http import bench, servers
from loadtest.http.cases import PARAMS, VOCAB, peaked
from loadtest.http.claims import CLAIMS, judge
from loadtest.http.client import NotAnsweredError, Result
from loadtest.http.report import Figure
from loadtest.kernels.answers import WrongAnswerError, right
from loadtest.kernels.cases import Case, Work
from loadtest.kernels.rows import pool
from loadtest.kernels.timing import Contender
from loadtest.peers import askers, beside, environments, model
from loadtest.peers.environments import Environment
from loadtest.peers.servers import PEERS

NOWHERE = ("127.0.0.1", 1)


@pytest.fixture
def address(service_url):
    place = urlsplit(service_url)
    return place.hostname, place.port


class Told:
    """Answers as it is told to, at a rate that depends on the connections."""

    def __init__(self, tokens=(), rates=None):
        self._tokens, self._rates = list(tokens), rates

    def tokens(self):
        return self._tokens

    def run(self, connections, seconds):
        return Result(self._rates[connections], 1.0)


# The same work


def test_peers_sample_what_logitd_samples():
    params = {name: value for name, value in PARAMS.items() if name != "seed"}
    assert params == {"temperature": model.TEMPERATURE, "top_k": model.TOP_K, "top_p": model.TOP_P}
    work = Work.of("peaked", Case("peers", params), pool("peaked", 8), 4)
    peers = Contender("the peers' model", lambda index: model.sample(work.blocks[index % 2].numpy()), 4, ours=True)
    assert right(work, [peers]) == ([peers], [])
    assert model.sample(peaked(2)).dtype == np.int32


def test_a_right_server_passes_and_a_wrong_one_is_named(address):
    beside.check("logitd", partial(askers.logitd, address), 2)
    with pytest.raises(WrongAnswerError, match=r"theirs drew \[1, 2\] where only \[1000, 1007\] can be drawn"):
        beside.check("theirs", lambda rows: Told([1, 2]), 2)


# Requests and answers


def test_triton_is_asked_in_binary_both_ways():
    asker = askers.triton(NOWHERE, peaked(2))
    head, _, body = asker.load.request.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    size = int(fields["inference-header-content-length"])
    asked = json.loads(body[:size])
    assert asked["inputs"][0]["shape"] == [2, VOCAB]
    assert asked["inputs"][0]["parameters"] == {"binary_data_size": len(body) - size}
    assert asked["outputs"] == [{"name": "TOKEN", "parameters": {"binary_data": True}}]
    np.testing.assert_array_equal(np.frombuffer(body[size:], np.float32).reshape(2, VOCAB), peaked(2))
    assert asker.read(b'{"outputs": []}' + np.array([5, 7], np.int32).tobytes()) == [5, 7]


def test_litserve_is_asked_for_bare_numbers():
    asker = askers.litserve(NOWHERE, peaked(1))
    head, _, body = asker.load.request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /predict?vocab=128256 HTTP/1.1\r\n")
    assert body == peaked(1).tobytes()
    assert asker.read(np.array([9], np.int32).tobytes()) == [9]


def test_a_client_that_cannot_ask_says_why(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho no route >&2; exit 3\n")
    python.chmod(0o700)
    monkeypatch.setattr(Environment, "folder", tmp_path)
    with pytest.raises(NotAnsweredError, match="no route"):
        askers.mlserver(NOWHERE, peaked(1)).tokens()


# Figures and claims


def test_the_number_of_connections_is_the_fastest_one():
    assert beside.fastest(Told(rates={1: 30, 4: 50, 16: 40}), 1.0) == 4
    assert beside.fastest(Told(rates={1: 30, 4: 50, 16: 90}), 1.0) == 16


def test_targets_are_about_triton_and_the_others_stand_beside_it():
    figures = [
        Figure(f"beside {peer}, B = {rows}", server, rows, 4, rates, [1.0])
        for peer in ("triton", "litserve")
        for rows in (1, 8)
        for server, rates in ((peer, [10.0, 20.0, 10.0]), ("logitd", [190.0, 380.0, 210.0]))
    ]
    verdicts = {claim.text: found for claim, found in zip(CLAIMS, judge(figures), strict=True)}
    one, eight = (verdicts[f"sampling {rows}, over Triton Inference Server"] for rows in ("one row", "eight rows"))
    assert (one.ratio.median, one.target, one.met) == (19.0, "≥ 20", False)
    assert (eight.ratio.median, eight.target, eight.met) == (19.0, "≥ 10", True)
    other = verdicts["sampling one row, over LitServe"]
    assert (other.ratio.median, other.met) == (19.0, None)
    assert verdicts["sampling one row, over MLServer"].ratio is None


# Environments


def test_every_peer_is_pinned_in_all_that_it_requires():
    for peer in PEERS:
        pins = peer.environment.pins.read_text().splitlines()
        assert all(line.count("==") == 1 and "+" not in line for line in pins)
        assert peer.release in pins
        assert "torch==2.13.0" in pins


def test_other_pins_are_another_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGITD_PEERS", str(tmp_path))
    monkeypatch.setattr(environments, "_HERE", tmp_path)
    found = []
    for pins in ("a==1\n", "a==2\n", "a==1\n"):
        (tmp_path / "a.txt").write_text(pins)
        found.append(Environment("a").folder)
    assert found[0] == found[2] != found[1]
    assert found[0].parent == tmp_path


def test_a_peer_that_is_not_set_up_is_absent_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGITD_PEERS", str(tmp_path))
    figures = []
    assert bench.measured(PEERS[0], NOWHERE, (1, 0.1), figures) == "absent: not set up (--peers does it)"
    assert figures == []


def test_a_peer_that_does_not_start_is_left_out_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/false")
    (tmp_path / ".installed").touch()
    monkeypatch.setenv("LOGITD_PEERS", str(tmp_path))
    monkeypatch.setattr(Environment, "folder", tmp_path)
    assert "ended with 1" in bench.measured(PEERS[0], NOWHERE, (1, 0.1), [])


# Servers

_STUBBORN = """
import os, signal, socket, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    time.sleep(60)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""


def test_nobody_of_a_servers_group_is_left(tmp_path):
    port, log = servers.free_port(), tmp_path / "log"
    with servers.running([sys.executable, "-c", _STUBBORN, str(port)], ("127.0.0.1", port), log=log):
        while not log.read_text().strip():
            time.sleep(0.01)
        child = int(log.read_text())
        os.kill(child, 0)
    ends = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < ends
        time.sleep(0.01)


def _runs(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
