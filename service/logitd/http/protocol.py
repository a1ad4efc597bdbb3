"""The HTTP protocol of `logitd serve`: uvicorn's httptools one, with bodies that pass the parser by.

Headers, keep-alive, pipelining and small bodies are uvicorn's. A declared body above a threshold is not parsed: reading
stops after its headers until the application asks for it, and it is then received in place. `docs/http.md` tells the
whole way.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from logitd.errors import Malformed, ServiceError
from logitd.http.corked import Corked
from logitd.http.ending import Ending
from logitd.http.readers import Reader, Target
from logitd.http.unread import Unread

_BLANK_BYTES = 64

_log = logging.getLogger("logitd.http")


class BodyProtocol(Ending):
    """One connection: what the transport and a request's life call.

    Args:
        left: called when a client is given up that does not read its answer.
        connection: what a connection takes.
    """

    _reader: Reader
    _unread: Unread

    def __init__(self, left: Callable[[], None], **connection: Any) -> None:  # noqa: ANN401
        super().__init__(**connection)
        self._left = left

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; a client that then says nothing is let go like an idle one."""
        self._unread = Unread(transport, self.loop, self._limits.write_timeout_seconds, self._give_up)
        super().connection_made(cast(asyncio.Transport, Corked(transport, self.loop, self._unread.watch)))
        self._reader = Reader(self, self._scratch)
        transport.set_protocol(self._reader)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: whoever waits for this client is told."""
        self._deaf = True
        self._unset_keepalive_if_required()
        self._unset_deadline()
        self._unread.stop()
        self.pipeline.clear()
        if self.running is not None and not self.running.response_complete:
            self.running.disconnected = True
            self.running.message_event.set()
        super().connection_lost(exc)
        if self._body is not None:
            self._body.lost()

    def parse(self, scratch: bytearray, data: memoryview) -> None:
        """Take what came: bytes of a body that passes the parser by, or the parser's."""
        if self._deaf or self._is_blank(data):
            return
        self._unset_keepalive_if_required()
        try:
            self._take(scratch, data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ServiceError) else Malformed("the request is not valid HTTP"))
        except ServiceError as error:
            self._refuse(error)
        self._watch()

    def _is_blank(self, data: memoryview) -> bool:
        """Whether it is empty lines between two requests: they are allowed, and no sign of life."""
        between = not self._in_headers and self._body is None
        return between and len(data) <= _BLANK_BYTES and not bytes(data).strip(b"\r\n")

    def receive_in_place(self, target: Target | None) -> None:
        """Read for a body; None is the parser again, after a body that came or was given up."""
        self._reader.target = target
        if self._body is not None and self._body.complete:
            self._body = None
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def give_way(self) -> None:
        """Let the others of the event loop go first before more of a body is received in place."""
        self.flow.pause_reading()
        self.loop.call_soon(self._go_on, self._reader.target)

    def _go_on(self, target: Target | None) -> None:
        if self._reader.target is target and not self.transport.is_closing():
            self.flow.resume_reading()

    def _give_up(self) -> None:
        _log.info("cut: nobody reads the answer", extra={"write_timeout_seconds": self._limits.write_timeout_seconds})
        self._left()
        self.transport.abort()

    # The life of a request, and its end.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on with the next request, or with the refusal of what came behind."""
        super().on_response_complete()
        if self._refusal is not None and self._idle():
            self._answer_refusal(self._refusal)
            return
        self._hold_unless_asked()  # uvicorn has begun to read again
        self._watch()
