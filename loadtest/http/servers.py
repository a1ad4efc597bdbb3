"""The servers that are measured, each a process of its own on a free loopback port."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from loadtest.http.client import Address, connected

_START_SECONDS, _END_SECONDS = 60.0, 20.0


class NotStartedError(Exception):
    """A server ended before it listened, or never did."""


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
    with running([*command, "--admin-port", "0", *flags], ("127.0.0.1", port)):
        yield "127.0.0.1", port


@contextlib.contextmanager
def bare(protocol: str) -> Iterator[tuple[str, int]]:
    """Run an ASGI application that reads the body and throws it away, under stock uvicorn or our protocol."""
    port = free_port()
    command = [sys.executable, "-m", "loadtest.http.drain", protocol, str(port)]
    with running(command, ("127.0.0.1", port)):
        yield "127.0.0.1", port


@contextlib.contextmanager
def running(
    command: Sequence[str], address: Address, variables: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[None]:
    """Run a server in a process group of its own; when it listens, yield; then end all of the group.

    Args:
        command: which runs it.
        address: on which it listens.
        variables: of the environment, beside this process's own; those that set up logitd are left out.
        log: takes all that it writes; None for this process's own output.

    Raises:
        NotStartedError: it ended, or does not listen after a minute.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOGITD_")}
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(
            command, env=environment | dict(variables or {}), stdout=output, stderr=output, start_new_session=True
        )
        try:
            _await(process, address)
            yield
        finally:
            _end(process)


def _await(process: "subprocess.Popen[bytes]", address: Address) -> None:
    ends = time.monotonic() + _START_SECONDS
    while True:
        if process.poll() is not None:
            raise NotStartedError(f"{process.args!r} ended with {process.returncode}")
        try:
            connected(address).close()
        except OSError as error:
            if time.monotonic() > ends:
                raise NotStartedError(f"{process.args!r} does not listen on {address}") from error
            time.sleep(0.05)
        else:
            return


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the first process to end, which ends its children in order; then whoever is left in its group."""
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
