"""The service as a process of its own, or in this one, for tests of how it starts, lives and ends."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import uvicorn
from processes import answers

from logitd.app import create_app


class Running:
    """A service and its log, read while it comes so that the pipe never fills."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.started = json.loads(process.stderr.readline())
        self.url, self.admin = self.started["url"], self.started["admin_url"]
        self._reader = threading.Thread(target=self.lines.extend, args=(process.stderr,))
        self._reader.start()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self):
        """Wait for the end; returns the exit status."""
        status = self.process.wait(30)
        self._reader.join()
        return status

    def log(self):
        """The log after `end`, as objects."""
        return [json.loads(line) for line in self.lines]

    def state(self):
        """`ready`, or why not."""
        return said(httpx.get(f"{self.admin}/health/ready").json())

    def inflight(self):
        """How many requests are being answered, as the admin port tells."""
        series = httpx.get(f"{self.admin}/metrics").text
        return float(series.partition("\nlogitd_inflight_requests ")[2].partition("\n")[0])


def said(document):
    return document.get("detail", document["status"])


def until(condition, seconds=30.0):
    """Wait for what another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@contextlib.contextmanager
def running(*flags, **environment):
    """Run `logitd serve` on free ports until the block ends; ready when it begins."""
    ports = ["--port", "0", "--admin-port", "0", "--attention-threshold", "1024"]  # unmeasured: that takes its time
    command = [sys.executable, "-m", "logitd.cli", "serve", *ports, *map(str, flags)]
    with started(command, env={**os.environ, **environment}) as service:
        yield service


@contextlib.contextmanager
def started(command, **options):
    """Run a command that becomes `logitd serve` until the block ends; ready when it begins.

    Args:
        options: of `subprocess.Popen`.
    """
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    try:
        service = Running(process)
        until(lambda: answers(f"{service.admin}/health/ready"))
        yield service
        if process.poll() is None:
            service.signal()
        service.end()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stderr.close()


@contextlib.contextmanager
def inside(settings, tracing=None):
    """Run the application in this process; yields it, its URL and its event loop."""
    app = create_app(settings, tracing)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http="httptools", loop="uvloop", access_log=False, log_config=None)
    server = uvicorn.Server(config)
    loops = []

    async def serve():
        loops.append(asyncio.get_running_loop())
        await server.serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        until(lambda: server.started)
        yield app, f"http://127.0.0.1:{listener.getsockname()[1]}", loops[0]
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive(), "the service did not stop"
