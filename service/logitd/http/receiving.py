"""One request's body on its way: how much has come, who is waiting for it, and where it goes."""

import asyncio
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from logitd.http.readers import Target

DRAIN_BYTES = 65_536  # an unread rest up to this is read and dropped, so that the connection can be kept
RECEIVE_INTO = "logitd.receive_into"

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_READ_BYTES = 1 << 18  # at once
_LARGE_BYTES = 1 << 23  # a body beyond lets others go first after each read: libuv would read 32 times
_SLOW_BODY = 408


class Connection(Protocol):
    """What a body needs of the connection it comes over."""

    def receive_in_place(self, target: Target | None) -> None:
        """Read for a body; None is the parser again, after a body that came or was given up."""

    def hold(self) -> None:
        """Read no more for now."""

    def give_way(self) -> None:
        """Read on after those who wait."""

    def soften(self, cycle: RequestResponseCycle) -> None:
        """Have a request that ends its connection do so gently, should its body still be on its way."""


class Body:
    """A request's body, and the application that answers it.

    Args:
        connection: what it comes over.
        app: the application.
        declared: its length in bytes; None for a chunked one.
        staged: whether it passes the parser by.
    """

    cycle: RequestResponseCycle

    def __init__(self, connection: Connection, app: ASGI3Application, declared: int | None, staged: bool) -> None:
        self.declared = declared
        self.staged = staged
        self.received = 0
        self.complete = False
        self.asked_for = False
        self.chunks = 0
        self.overhead_bytes = -1
        self._connection = connection
        self._app = app
        self._target: memoryview | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def remaining(self) -> int | None:
        """How many bytes are still to come; None where nobody has said."""
        return None if self.declared is None else self.declared - self.received

    @property
    def unwanted(self) -> bool:
        """Whether its request was answered while it was still on its way."""
        return not self.complete and self.cycle.response_complete

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        """Run the application: an answer that comes before the body's end says so when it ends the connection."""
        if self.complete:
            await self._app(scope, receive, send)
            return
        self._connection.soften(self.cycle)

        async def received() -> Any:  # noqa: ANN401
            self.asked_for = True
            return await receive()

        async def sent(message: Any) -> None:  # noqa: ANN401
            if message["type"] == "http.response.start" and self._ends_the_connection(message["status"]):
                self.cycle.keep_alive = False
            await send(message)

        try:
            await self._app(scope, received, sent)
        finally:
            scope.pop("extensions", None)  # which leads back here: no work for the garbage collector

    def _ends_the_connection(self, status: int) -> bool:
        if self.complete:
            return False
        # A client that waits for 100 Continue may send its body or not: what follows could be either.
        undecided = self.cycle.waiting_for_100_continue or status == _SLOW_BODY
        return undecided or self.remaining is None or self.remaining > DRAIN_BYTES

    def take(self, data: memoryview) -> memoryview:
        """Take what is this body's of bytes that were read for the parser; returns the rest."""
        assert self.declared is not None
        mine = data[: self.remaining]
        self.received += len(mine)
        if not (self.cycle.response_complete or self.cycle.disconnected):
            self.cycle.body += mine
            self.cycle.message_event.set()
            if len(self.cycle.body) > HIGH_WATER_LIMIT:
                self._connection.hold()
        if self.received == self.declared:
            self._ended()
        return data[len(mine) :]

    def _ended(self) -> None:
        self.complete = True
        self.cycle.more_body = False

    async def receive_into(self, buffer: memoryview) -> None:
        """Receive the body into a buffer of exactly its length: the application's side, once for a request.

        Raises:
            ClientDisconnect: the client left before its end.
        """
        cycle = self.cycle
        early = cycle.body
        self.asked_for = True
        if len(buffer) != self.declared or len(early) != self.received or self._waiter is not None:
            raise RuntimeError("a body is received once, into a buffer of its length")
        if cycle.disconnected or cycle.response_complete:
            raise ClientDisconnect
        if cycle.waiting_for_100_continue and not cycle.transport.is_closing():
            cycle.transport.write(_CONTINUE)
            cycle.waiting_for_100_continue = False
        buffer[: len(early)] = early
        cycle.body = bytearray()
        cycle.message_event.clear()
        self._waiter = asyncio.get_running_loop().create_future()
        if not self.complete:
            await self._rest(self._waiter, buffer[len(early) :])
        if not self.complete:
            raise ClientDisconnect

    async def _rest(self, waiter: asyncio.Future[None], target: memoryview) -> None:
        self._target = target
        self._connection.receive_in_place(self)
        try:
            await waiter
        finally:
            if self._target is not None:  # it did not come: nobody writes into a buffer that is somebody else's soon
                self._target = None
                self._connection.receive_in_place(None)
                self._connection.hold()

    def space(self) -> memoryview:
        """Return where the next bytes go."""
        assert self._target is not None
        return self._target[:_READ_BYTES]

    def filled(self, count: int) -> None:
        """Count bytes that were received in place."""
        assert self._target is not None
        assert self.declared is not None
        self.received += count
        self._target = self._target[count:]
        if self.received == self.declared:
            self._target = None
            self._ended()
            self._connection.receive_in_place(None)
            self._wake()
        elif self.declared > _LARGE_BYTES:
            self._connection.give_way()

    def lost(self) -> None:
        """Wake who waits: the connection is gone."""
        self._target = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
