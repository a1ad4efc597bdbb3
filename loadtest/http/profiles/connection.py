"""HTTP/1.1 connections for many requests at once: nothing is parsed but status, length and whether it stays open."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import cast

from loadtest.http.profiles.target import Target

CLOSED = ConnectionError("the connection was closed")


@dataclass(frozen=True)
class Answer:
    """The status, and the body as it came."""

    status: int
    body: bytes = b""


class Connection(asyncio.Protocol):
    """One connection that is asked one thing at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._received = bytearray()
        self._body_at = self._ends_at = 0
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def ask(self, request: bytes) -> "asyncio.Future[Answer]":
        """Send a request; the result is its answer, or ConnectionError."""
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._received.clear()
        self._body_at = self._ends_at = 0
        if self._transport.is_closing():
            self.connection_lost(None)
        else:
            self._transport.write(request)
        return self._waiter

    def data_received(self, data: bytes) -> None:
        """Collect an answer."""
        self._received += data
        if not self._body_at and (end := self._received.find(b"\r\n\r\n")) >= 0:
            self._read_head(bytes(self._received[:end]).lower(), end + 4)
        chunked = self._ends_at < 0
        if self._body_at and (self._received.endswith(b"\r\n0\r\n\r\n") if chunked else self._is_whole()):
            self._settle(Answer(int(self._received[9:12]), bytes(self._received[self._body_at :])))

    def _read_head(self, head: bytes, body_at: int) -> None:
        self._body_at = body_at
        length = head.partition(b"\r\ncontent-length:")[2].split(b"\r\n", 1)[0]
        self._ends_at = body_at + int(length) if length else -1 if b"\r\ntransfer-encoding:" in head else body_at
        self.usable = b"\r\nconnection: close" not in head

    def _is_whole(self) -> bool:
        return len(self._received) >= self._ends_at

    def connection_lost(self, _exception: Exception | None) -> None:
        """Fail what still waits."""
        self.usable = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(CLOSED)

    def _settle(self, answer: Answer) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def abort(self) -> None:
        """Leave, whatever is under way."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """Connections to one server, opened when there is none free, up to a number; more askers wait for their turn."""

    def __init__(self, target: Target, most: int) -> None:
        self._target = target
        self._turns = asyncio.Semaphore(most)  # in the order in which they ask
        self._tls = ssl.create_default_context() if target.tls else None
        self._free: list[Connection] = []

    async def take(self) -> Connection:
        """Return a connection that nobody else has.

        Raises:
            OSError: the server cannot be reached.
        """
        await self._turns.acquire()
        while self._free:
            if (connection := self._free.pop()).usable:
                return connection
        try:
            return await self._opened()
        except BaseException:
            self._turns.release()
            raise

    def give(self, connection: Connection) -> None:
        """Take a connection back."""
        if connection.usable:
            self._free.append(connection)
        else:
            connection.abort()
        self._turns.release()

    def close(self) -> None:
        """Close those that are free."""
        while self._free:
            self._free.pop().abort()

    async def _opened(self) -> Connection:
        loop, address = asyncio.get_running_loop(), self._target.address
        if isinstance(address, str):
            _, connection = await loop.create_unix_connection(Connection, address)
        else:
            _, connection = await loop.create_connection(Connection, *address, ssl=self._tls)
        return connection
