"""Unix domain sockets: the service behind one, both clients, and the command."""

import asyncio
import gc
import json
import os
import socket
import stat

import httpx
import numpy as np
import pytest
from running import running, until

from logitd import AsyncClient, Client, ConnectionFailed
from logitd.cli import main
from logitd.errors import CannotServe
from logitd.serving.listen import listen_unix

LOGITS = (np.random.default_rng(5).normal(size=(3, 300)) * 4).astype(np.float32)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running("--uds", tmp_path_factory.mktemp("uds") / "logitd.sock") as service:
        yield service


@pytest.fixture
def path(service):
    return service.url.removeprefix("unix://")


def test_it_listens_there_for_its_owner_alone(service, path):
    assert service.url == f"unix://{path}"
    found = os.stat(path).st_mode
    assert (stat.S_ISSOCK(found), stat.S_IMODE(found)) == (True, 0o600)


def test_both_clients_reach_it(service, path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nothing to do with a socket file

    async def ask():
        async with AsyncClient(uds=path) as client, AsyncClient(service.url) as other:
            first, second = await client.sample(LOGITS, seed=1), await other.sample(LOGITS, seed=1)
        return first.tokens.tolist(), second.tokens.tolist()

    with Client(uds=path) as client, Client(service.url) as other:
        tokens = client.sample(LOGITS, seed=1).tokens.tolist()
        assert other.sample(LOGITS, seed=1).tokens.tolist() == tokens
        assert client.info()["settings"]["uds"] == path
    assert asyncio.run(ask()) == (tokens, tokens)


def test_the_command_reaches_it(service, path, capsys, tmp_path, monkeypatch):
    np.save(tmp_path / "logits.npy", LOGITS)
    command = ["sample", str(tmp_path / "logits.npy"), "--seed", "1", "--json"]
    for flags in (["--uds", path], ["--url", service.url]):
        assert main([*command, *flags]) == 0
        shown = [row["token"] for row in json.loads(capsys.readouterr().out)]
        with Client(uds=path) as client:
            assert shown == client.sample(LOGITS, seed=1).tokens.tolist()
    monkeypatch.setenv("LOGITD_URL", service.url)
    assert main(["info"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["uds"] == path


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # httpcore forgets such a socket
def test_nobody_listens(tmp_path, capsys):
    with Client(uds=tmp_path / "none", retries=0) as client, pytest.raises(ConnectionFailed):
        client.info()
    assert main(["info", "--uds", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"logitd: unix://{tmp_path}/none: [Errno 2] No such file or directory\n"
    gc.collect()


@pytest.mark.parametrize("url", ["unix://relative.sock", "unix:", "unix://"])
def test_a_path_that_is_not_absolute(url):
    with pytest.raises(ValueError, match="absolute path"):
        Client(url)


def test_what_a_crash_left_is_replaced(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(path))
        crashed.listen()
    listener = listen_unix(path, 0o600)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
    listener.close()
    assert not path.exists()


def test_somebody_elses_file_stays(tmp_path):
    path = tmp_path / "socket"
    first = listen_unix(path, 0o600)
    with pytest.raises(CannotServe, match="Address already in use"):
        listen_unix(path, 0o600)
    path.unlink()
    second = listen_unix(path, 0o600)
    first.close()
    assert path.exists()  # it is the second's
    second.close()
    path.write_text("a letter")
    with pytest.raises(CannotServe, match="no socket"):
        listen_unix(path, 0o600)
    assert path.read_text() == "a letter"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotServe, match="no socket"):
        listen_unix(path, 0o600)


def test_requests_under_way_end_and_the_file_goes(tmp_path):
    path = tmp_path / "socket"
    body = json.dumps({"logits": [[1, 2]]}).encode()
    head = b"POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with running("--uds", path, "--uds-mode", "660") as service:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as caller, socket.socket(socket.AF_UNIX) as idle:
            for connection in (caller, idle):
                connection.connect(str(path))
            caller.sendall(head % len(body))
            until(lambda: service.inflight() == 1)
            service.signal()
            until(lambda: service.state() == "draining")
            caller.sendall(body)
            assert caller.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            assert idle.recv(1) == b""
        assert service.end() == 0
    assert not path.exists()


def test_the_admin_port_is_there_beside_it(service):
    assert httpx.get(f"{service.admin}/health/ready").json() == {"status": "ready"}
