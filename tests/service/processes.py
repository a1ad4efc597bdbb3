"""Processes beside the service that tests start: where they listen, whether they answer, their end."""

import contextlib
import socket
import subprocess

import httpx


def free_ports(count=1):
    """Return so many ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def answers(url):
    """Whether somebody is there and answers 200."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url).status_code == 200
    return False


def ended(process):
    """Ask a process to end, and make it."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
