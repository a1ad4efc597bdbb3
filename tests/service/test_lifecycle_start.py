"""The beginning: what cannot be served ends in one line, and the first request is not a slow one."""

import contextlib
import logging
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time

import httpx
import pytest
from running import running
from wire import post

from logitd.cli import main


@pytest.fixture
def start(capsys):
    """`start("--port", …)` → the exit status and the one line of complaint."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def start(*flags):
        status = main(["serve", *map(str, flags)])
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert err.startswith("logitd: ")
        return status, err.removeprefix("logitd: ").rstrip("\n")

    yield start
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("uvicorn.access").disabled = False


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_in_use(start, taken):
    complaint = f"cannot listen on 127.0.0.1:{taken}: Address already in use"
    assert start("--port", taken) == (1, complaint)
    assert start("--port", 0, "--admin-port", taken) == (1, complaint)


@pytest.fixture
def taken_after_free():
    """A port that is taken; the one before it is free."""
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.suppress(OSError):
            port = listener.getsockname()[1]
            socket.create_server(("127.0.0.1", port - 1)).close()
            yield port
            return
    pytest.fail("no port is free before another")


def test_the_admin_port_is_the_next_one(start, taken_after_free):
    assert start("--port", taken_after_free - 1) == (
        1,
        f"cannot listen on 127.0.0.1:{taken_after_free}: Address already in use",
    )


@pytest.mark.parametrize("host", ["no.such.host.invalid", "256.256.256.256", "a" * 300, "..", "8.8.8.8"])
def test_an_address_that_is_not_ours(start, host):
    status, complaint = start("--host", host, "--port", 0)
    assert status == 1
    assert complaint.startswith(f"cannot listen on {host}:0: ")
    assert "Success" not in complaint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_no_permission(start, tmp_path):
    tmp_path.chmod(0o500)
    assert start("--uds", tmp_path / "socket") == (1, f"cannot listen on {tmp_path}/socket: Permission denied")


def test_socket_files(start, tmp_path):
    (tmp_path / "file").touch()
    assert start("--uds", tmp_path / "file")[0] == 1
    assert start("--uds", tmp_path / "none" / "file")[1].endswith(": No such file or directory")
    assert start("--uds", tmp_path / ("x" * 200))[1].endswith(": AF_UNIX path too long")
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(tmp_path / "live"))
        live.listen()
        assert start("--uds", tmp_path / "live")[1].endswith(": Address already in use")
    assert start("--uds", tmp_path / "x", "--uds-mode", "999")[0] == 2


@pytest.mark.parametrize(
    "flags",
    [
        ["--api-keys-file", "{}/none"],
        ["--api-keys-file", "{}"],
        ["--api-keys", ""],
        ["--tls-certificate", "{}/none"],
        ["--tls-certificate", "{}/text"],
        ["--tls-key", "{}/text"],
        ["--live-seconds", "0"],
        ["--drain-seconds", "-1"],
        ["--drain-seconds", "nan"],
        ["--admin-port", "65536"],
    ],
    ids=" ".join,
)
def test_settings_that_cannot_be(start, tmp_path, flags):
    (tmp_path / "text").write_text("neither certificate nor key")
    status, complaint = start("--port", 0, *(flag.format(tmp_path) for flag in flags))
    assert status == 2
    assert "--" in complaint or str(tmp_path) in complaint


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Certificate and key for 127.0.0.1, and the key under a password."""
    folder = tmp_path_factory.mktemp("tls")
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    make = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    name = ["-subj", "/CN=logitd", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", folder / "key", "-out", folder / "certificate"]
    subprocess.run([*make, *name, *files], check=True, capture_output=True)
    locked = ["-in", folder / "key", "-out", folder / "locked", "-aes256", "-passout", "pass:secret"]
    subprocess.run([openssl, "pkey", *locked], check=True, capture_output=True)
    return folder


def test_tls_files_that_do_not_fit(start, certificate):
    given = ["--port", 0, "--tls-certificate", certificate / "certificate"]
    assert start(*given)[0] == 2
    status, complaint = start(*given, "--tls-key", certificate / "locked")  # and nobody is asked for the password
    assert (status, str(certificate / "locked") in complaint) == (2, True)


def test_tls(certificate):
    flags = ["--tls-certificate", certificate / "certificate", "--tls-key", certificate / "key"]
    with running(*flags) as service:
        assert service.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate / "certificate"))
        with httpx.Client(base_url=service.url, verify=trusting) as client:
            answer = client.post("/v1/sample", json={"logits": [[1, 2]], "params": {"temperature": 0}})
            assert answer.json()["rows"][0]["token"] == 1
            assert "tls_key" not in client.get("/v1/info").json()["settings"]
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(service.url)
        service.signal()
        assert service.end() == 0


def test_the_first_request_is_not_a_slow_one():
    with running() as service:
        seconds = []
        for _ in range(12):
            began = time.perf_counter()
            assert post(service.url, "/v1/sample", {"logits": [[1, 2, 3]], "params": {"seed": 1}}).status_code == 200
            seconds.append(time.perf_counter() - began)
    assert seconds[0] < 10 * sorted(seconds[1:])[5]


def test_what_is_there_at_the_start_is_never_looked_at_again_by_the_collector():
    code = """
import asyncio, gc, uvicorn
from logitd.lifecycle import Lifecycle
from logitd.serving.drain import DrainingServer

async def app(scope, receive, send):
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})

async def main():
    config = uvicorn.Config(app, port=0, log_config=None)
    config.load()
    server = DrainingServer(config, Lifecycle(), 0, 1, lambda: None)
    server.lifespan = config.lifespan_class(config)
    there = [[]]
    await server.startup()
    print(any(one is there for one in gc.get_objects()))
    await server.shutdown()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False"]
