"""The end of what does not end: refused when its time is over, gone at a second signal."""

import json
import signal
import socket

from halves import answered, begun
from running import running, until


def test_what_does_not_end_in_time_is_refused():
    with running("--shutdown-seconds", 0.3) as service:
        [connection] = begun(service, 1)
        service.signal()
        response, body = answered(connection)
        assert (response.status, response.getheader("content-type")) == (503, "application/problem+json")
        assert (response.getheader("connection"), json.loads(body)["error"]) == ("close", "the service is ending")
        connection.close()
        assert service.end() == 1
    assert [line["requests"] for line in service.log() if line["message"] == "requests were cut"] == [1]


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
