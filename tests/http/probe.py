"""The service on one of the two protocols, and beside it routes that tell what a protocol did with a body."""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import ssl
import threading
import time

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from raw import KEY, Wire, head

from logitd.api import problems
from logitd.api.body import read_body
from logitd.app import create_app
from logitd.http.receiving import RECEIVE_INTO
from logitd.http.staging import StagingPool
from logitd.server import http_protocol
from logitd.settings import Settings

SETTINGS = {
    "api_keys": KEY,
    "staged_body_bytes": 4096,
    "max_body_bytes": 80 << 20,
    "max_chunked_body_bytes": 400_000,
    "max_json_bytes": 100_000,
    "body_timeout_seconds": 15,
}


def reading(settings):
    """Routes that read a body whole, in parts, or not at all."""
    app = FastAPI()
    app.state.settings, app.state.staging = settings, StagingPool(settings.staging_pool_bytes)
    problems.install(app)

    @app.api_route("/probe/digest", methods=["GET", "POST", "PUT"])
    async def told(request: Request):
        body = await read_body(request, settings)
        staged = RECEIVE_INTO in request.scope.get("extensions", {})
        return Response(hashlib.sha256(body).hexdigest(), headers={"x-length": str(len(body)), "x-staged": str(staged)})

    @app.post("/probe/stream")
    async def streamed(request: Request):
        body = b"".join([chunk async for chunk in request.stream()])
        return Response(hashlib.sha256(body).hexdigest())

    @app.api_route("/probe/unread/{status}", methods=["GET", "POST"])
    async def unread(status: int):
        return Response("unread", status)

    _waiting(app, settings)
    return app


def _waiting(app, settings):
    @app.post("/probe/late")
    async def late(request: Request):
        await asyncio.sleep(0.05)
        return Response(hashlib.sha256(await read_body(request, settings)).hexdigest())

    @app.post("/probe/leaving")
    async def leaving(request: Request):
        await read_body(request, settings)
        while not await request.is_disconnected():
            await asyncio.sleep(0.005)
        return Response()

    @app.api_route("/probe/empty", methods=["GET", "HEAD"])
    async def empty():
        return Response("")

    @app.get("/probe/large/{count}")
    async def large(count: int):
        block = bytes(range(256)) * 256

        async def blocks():
            for _ in range(count):
                yield block

        return StreamingResponse(blocks(), headers={"content-length": str(count * len(block))})


class _Errors(logging.Handler):
    """Keeps what a server, its loop or its tasks complain of."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.lines = []

    def emit(self, record):
        self.lines.append((record.getMessage(), record.exc_info))


class Served:
    """A server in a thread.

    Attributes:
        kind: the protocol, "logitd" or "stock".
        tls: the client's context, where the server has a certificate.
        port: on loopback.
        server: uvicorn's.
    """

    def __init__(self, kind, loop="uvloop", certificate=None, probes=None, **settings):
        self.kind = kind
        self._errors = _Errors()
        self.tls = certificate and ssl.create_default_context(cafile=certificate)
        if self.tls:
            self.tls.check_hostname = False
        self.settings = Settings(http_protocol=kind, **{**SETTINGS, **settings})
        service, beside = create_app(self.settings), probes or reading(self.settings)

        async def app(scope, receive, send):
            await (beside if scope.get("path", "").startswith("/probe/") else service)(scope, receive, send)

        config = uvicorn.Config(
            app,
            http=http_protocol(self.settings, service.metrics),
            ws="none",
            loop=loop,
            ssl_certfile=certificate,
            access_log=False,
            log_config=None,
            timeout_keep_alive=60,
        )
        self.server = uvicorn.Server(config)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._listener]})

    def __enter__(self):
        logging.getLogger().addHandler(self._errors)
        self._thread.start()
        while not self.server.started:
            assert self._thread.is_alive(), "the service did not start"
            self._thread.join(0.01)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self._thread.join(30)
        self._listener.close()
        logging.getLogger().removeHandler(self._errors)
        assert not self._thread.is_alive(), "the service did not stop"
        assert not self._errors.lines, "the server logged errors"

    @contextlib.contextmanager
    def connected(self, receive_buffer_bytes=None):
        with socket.socket() as connection:
            if receive_buffer_bytes is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", self.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is None:
                yield Wire(connection)
            else:
                with self.tls.wrap_socket(connection) as wrapped:
                    yield Wire(wrapped)

    def open_files(self):
        return len(os.listdir("/proc/self/fd"))

    def until_quiet(self):
        """Wait until no request and no connection is left, by uvicorn's count and by ours."""
        state = self.server.server_state
        eventually(lambda: self._inflight() == 1)  # the scrape itself; who came before it has been accepted by now
        eventually(lambda: not state.connections and not state.tasks)

    def _inflight(self):
        return self.metric("logitd_inflight_requests")

    def metric(self, name):
        """The value of a series, labels and all."""
        with self.connected() as wire:
            wire.send(head("GET", "/metrics", "connection: close"))
            return float(wire.answer().body.decode().partition(f"\n{name} ")[2].split("\n")[0])


def eventually(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)
