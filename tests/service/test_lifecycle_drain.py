"""The end: on a signal nothing that was accepted is lost, whatever state it is in."""

import signal
import threading
import time

import httpx
import pytest
from halves import BODY, answered, begun, connected
from running import running, until
from wire import SAFETENSORS


@pytest.mark.parametrize(("number", "protocol"), [(signal.SIGTERM, "logitd"), (signal.SIGINT, "stock")])
def test_every_request_that_has_begun_is_answered_and_nobody_idle_waited_for(number, protocol):
    with running("--http-protocol", protocol, "--shutdown-seconds", 60) as service:
        idle = [connected(service) for _ in range(20)]
        for connection in idle[:10]:
            connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            assert answered(connection)[0].status == 200
        connections = begun(service, 60)
        service.signal(number)
        until(lambda: service.state() == "draining")
        for connection in connections:
            connection.sendall(BODY[len(BODY) // 2 :])
        began = time.monotonic()
        for connection in connections:
            response, body = answered(connection)
            assert (response.status, response.getheader("connection")) == (200, "close")
            assert len(body) == int(response.getheader("content-length"))
            assert connection.recv(1) == b""
            connection.close()
        assert service.end() == 0
        assert time.monotonic() - began < 30
        for connection in idle:
            assert connection.recv(1) == b""
            connection.close()
        with pytest.raises(ConnectionRefusedError):
            connected(service)
    log = service.log()
    assert sum(line["message"] == "request" and line["path"] == "/v1/sample" for line in log) == 60
    assert [line for line in log if line["level"] in ("error", "critical")] == []


def test_a_keep_alive_client_under_way_loses_nothing():
    """Clients ask again and again over kept connections; each is told Connection: close, or refused at the door."""
    lost, answers = [], []

    def ask(url):
        with httpx.Client(base_url=url, timeout=30) as client:
            while True:
                try:
                    answer = client.post("/v1/sample", content=BODY, headers={"content-type": SAFETENSORS})
                except httpx.ConnectError:
                    return
                except httpx.TransportError as error:
                    lost.append(error)
                    return
                answers.append(answer.status_code)

    with running() as service:
        askers = [threading.Thread(target=ask, args=(service.url,)) for _ in range(16)]
        for asker in askers:
            asker.start()
        until(lambda: len(answers) > 50)
        service.signal()
        assert service.end() == 0
        for asker in askers:
            asker.join()
    assert lost == []
    assert set(answers) == {200}


def test_the_delay_before_the_door_closes():
    with running("--drain-seconds", 1.5) as service:
        idle = httpx.Client(base_url=service.url)
        assert "connection" not in idle.get("/health/live").headers
        service.signal()
        until(lambda: service.state() == "draining")
        began = time.monotonic()
        assert httpx.get(f"{service.url}/health/ready").status_code == 503
        assert httpx.get(f"{service.url}/health/live").status_code == 200
        assert idle.get("/health/live").headers["connection"] == "close"
        answer = httpx.post(f"{service.url}/v1/sample", content=BODY, headers={"content-type": SAFETENSORS})
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert service.end() == 0
        assert time.monotonic() - began > 1
        idle.close()
