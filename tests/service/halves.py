"""Requests of which a service has half the body, over sockets of the test's own."""

import socket
from http.client import HTTPResponse

import numpy as np
from running import until
from wire import SAFETENSORS, packed

BODY = packed({"logits": np.zeros((2, 5000), np.float32)}, {"params": {"seed": 1}})
HEAD = (
    f"POST /v1/sample HTTP/1.1\r\nhost: x\r\ncontent-type: {SAFETENSORS}\r\naccept: {SAFETENSORS}\r\n"
    f"content-length: {len(BODY)}\r\n\r\n"
).encode()


def connected(service):
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answered(connection):
    """Read one whole answer."""
    response = HTTPResponse(connection)
    response.begin()
    return response, response.read()


def begun(service, count):
    """Requests of which the service has the head and some of the body."""
    connections = [connected(service) for _ in range(count)]
    before = service.inflight()
    for connection in connections:
        connection.sendall(HEAD + BODY[: len(BODY) // 2])
    until(lambda: service.inflight() >= before + count)
    return connections
