"""The servers that are measured, each a process of its own on a free loopback port."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from loadtest.http.client import Address, connected

_START_SECONDS = 60.0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def logitd(*flags: str) -> Iterator[tuple[str, int]]:
    """Run `logitd serve` with some flags; yields its address."""
    port = free_port()
    command = [sys.executable, "-m", "logitd.cli", "serve", "--port", str(port), "--log-level", "warning"]
    with _running([*command, "--admin-port", "0", *flags], ("127.0.0.1", port)):
        yield "127.0.0.1", port


@contextlib.contextmanager
def bare(protocol: str) -> Iterator[tuple[str, int]]:
    """Run an ASGI application that reads the body and throws it away, under stock uvicorn or our protocol."""
    port = free_port()
    command = [sys.executable, "-m", "loadtest.http.drain", protocol, str(port)]
    with _running(command, ("127.0.0.1", port)):
        yield "127.0.0.1", port


@contextlib.contextmanager
def _running(command: list[str], address: Address) -> Iterator[None]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOGITD_")}
    process = subprocess.Popen(command, env=environment)
    try:
        _await(process, address)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: "subprocess.Popen[bytes]", address: Address) -> None:
    ends = time.monotonic() + _START_SECONDS
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            connected(address).close()
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.05)
        else:
            return
