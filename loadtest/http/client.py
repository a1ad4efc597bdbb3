"""The one client of all servers: raw sockets, each sending a ready request as soon as the last is answered."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Address = tuple[str, int] | str  # host and port, or the path of a Unix socket


@dataclass(frozen=True)
class Load:
    """A request that is sent over and over.

    Attributes:
        address: of the server.
        request: head and body, as they go over the wire.
        prepare: is called before each request, for what does not go over the wire; None for nothing.
    """

    address: Address
    request: bytes
    prepare: Callable[[], None] | None = None


@dataclass
class Result:
    """What came of a turn.

    Attributes:
        requests: how many were answered with 200.
        seconds: from the first to the last.
        latencies_seconds: of each.
    """

    requests: int = 0
    seconds: float = 0.0
    latencies_seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds if self.seconds else 0.0


class NotAnsweredError(Exception):
    """A server answered with something else than 200."""


def post(path: str, body: bytes, content_type: str, **headers: str) -> bytes:
    """Return a POST as it goes over the wire; `_` in names of headers stands for `-`."""
    return request("POST", path, {"content-type": content_type, **headers}, body)


def get(path: str) -> bytes:
    """Return a GET as it goes over the wire."""
    return request("GET", path, {})


def request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return a request as it goes over the wire; a POST declares its length unless the headers do."""
    named = {"host": "loadtest"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if method == "POST":
        named.setdefault("content-length", str(len(body)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def closed_loop(load: Load, connections: int, seconds: float) -> Result:
    """Send from some connections for a while, each its next request when the last is answered.

    Raises:
        NotAnsweredError: an answer that is not 200.
    """
    results = [Result() for _ in range(connections)]
    faults: list[Exception] = []
    start, ends = threading.Barrier(connections), time.perf_counter() + seconds

    def work(result: Result) -> None:
        try:
            with connected(load.address) as connection:
                start.wait(10)
                _run(connection, load, result, ends)
        except Exception as error:
            start.abort()
            faults.append(error)

    began = time.perf_counter()
    threads = [threading.Thread(target=work, args=(result,)) for result in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    latencies = [one for result in results for one in result.latencies_seconds]
    return Result(sum(result.requests for result in results), time.perf_counter() - began, latencies)


def connected(address: Address) -> socket.socket:
    """Return a connection, without Nagle's delay."""
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(address)
    else:
        connection = socket.create_connection(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(60)
    return connection


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send one request; return the body of its answer.

    Raises:
        NotAnsweredError: another status than 200, or an answer without a length.
    """
    connection.sendall(request)
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _received(connection)
    head, body = data[:end].lower(), data[end + 4 :]
    place = head.find(b"content-length:")
    if not head.startswith(b"http/1.1 200") or place < 0:
        raise NotAnsweredError((head + b" " + body)[:300].decode(errors="replace"))
    wanted = int(head[place + 15 :].split(b"\r\n", 1)[0])
    while len(body) < wanted:
        body += _received(connection)
    return body


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 20)
    if not data:
        raise NotAnsweredError("the connection was closed")
    return data


def _run(connection: socket.socket, load: Load, result: Result, ends: float) -> None:
    while (began := time.perf_counter()) < ends:
        if load.prepare is not None:
            load.prepare()
        ask(connection, load.request)
        result.latencies_seconds.append(time.perf_counter() - began)
        result.requests += 1
