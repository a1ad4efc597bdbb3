"""The end of what does not end: refused when its time is over, gone at a second signal."""

import contextlib
import json
import signal
import socket

import numpy as np
import pytest
from halves import answered, begun, connected
from running import running, until
from wire import SAFETENSORS, packed


def watching(service):
    """A client that reads the events of some seconds' work, from their first line on."""
    tensors = {name: np.ones((1, 4, 8000, 32), np.float32) for name in "qkv"}
    body = packed(tensors, {})
    connection = connected(service)
    connection.sendall(
        f"POST /v1/attention/compare HTTP/1.1\r\nhost: x\r\ncontent-type: {SAFETENSORS}\r\n"
        f"accept: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    )
    connection.sendall(body)
    assert connection.recv(15) == b"HTTP/1.1 200 OK"
    return connection


@pytest.mark.parametrize("protocol", ["logitd", "stock"])
def test_what_does_not_end_in_time_is_refused_or_cut(protocol):
    with running("--http-protocol", protocol, "--shutdown-seconds", 0.3) as service:
        reader = watching(service)
        [connection] = begun(service, 1)
        service.signal()
        response, body = answered(connection)
        assert (response.status, response.getheader("content-type")) == (503, "application/problem+json")
        assert (response.getheader("connection"), json.loads(body)["error"]) == ("close", "the service is ending")
        connection.close()
        with contextlib.suppress(ConnectionResetError):
            assert not reader.recv(1 << 20).endswith(b"0\r\n\r\n")
        reader.close()
        assert service.end() == 1
    complaints = [line for line in service.log() if line["level"] not in ("debug", "info")]
    assert [(line["message"], line["requests"]) for line in complaints] == [("requests were cut", 2)]


def test_a_second_signal_ends_it_at_once():
    with running("--shutdown-seconds", 60) as service:
        [connection] = begun(service, 1)
        service.signal()
        until(lambda: service.state() == "draining")
        service.signal()
        assert service.end() == 128 + signal.SIGTERM
        connection.close()


def test_at_once_takes_the_socket_file_along(tmp_path):
    path = tmp_path / "socket"
    with running("--uds", path, "--shutdown-seconds", 60) as service, socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        caller.sendall(b"POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n")
        until(lambda: service.inflight() == 1)
        service.signal(signal.SIGINT)
        until(lambda: service.state() == "draining")
        service.signal()
        assert service.end() == 128 + signal.SIGTERM
        assert not path.exists()
        assert caller.recv(1) == b""
