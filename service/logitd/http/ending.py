"""How a connection ends: refusals by the protocol, lingering, and the clocks."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from logitd.errors import ServiceError, SlowHeaders
from logitd.http.limits import Limits
from logitd.http.lingering import Closing, linger
from logitd.http.parsing import Parsing

_log = logging.getLogger("logitd.http")


class Ending(Parsing):
    """The half of a connection that knows when it is over.

    Args:
        limits: of every request.
        render: a refusal as an application/problem+json document.
        uncounted: is told of a refusal before there was a request.
        scratch: where every connection of the event loop reads for its parser.
        uvicorn: what uvicorn gives a protocol.

    Attributes:
        running: the request that is being answered, or the last that was.
    """

    def __init__(
        self,
        limits: Limits,
        render: Callable[[ServiceError], bytes],
        uncounted: Callable[[ServiceError], None],
        scratch: bytearray,
        **uvicorn: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(limits, **uvicorn)
        self._scratch = scratch
        self._render = render
        self._uncounted = uncounted
        self.running: RequestResponseCycle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._refusal: ServiceError | None = None
        self._deaf = False  # what still comes is dropped

    def _idle(self) -> bool:
        return self.running is None or self.running.response_complete

    def soften(self, cycle: RequestResponseCycle) -> None:
        """Have a request that ends its connection do so gently, should its body still be on its way."""
        cycle.transport = Closing(self.transport, self._close_after_answer)  # type: ignore[assignment]

    def _close_after_answer(self) -> None:
        if self._body is None or self._body.complete:
            self.transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        if not self.transport.is_closing():
            self._deaf = True
            self._unset_keepalive_if_required()
            self._unset_deadline()
            self.flow.resume_reading()
            self._deadline = linger(self.transport, self.loop)

    def _refuse(self, error: ServiceError) -> None:
        """Answer what cannot be understood, after the requests that could, and end the connection."""
        self._deaf = True
        body, self._body = self._body, None
        broken = None if body is None else body.cycle
        if broken is None:
            self._uncounted(error)
        if broken is not None and broken is not self.running:
            self.pipeline.remove(next(entry for entry in self.pipeline if entry[0] is broken))
        if self.running is not broken and not self._idle():
            self._refusal = error
            return
        if broken is not None:
            broken.disconnected = True
            broken.message_event.set()
            if broken.response_started:
                self.transport.close()
                return
        self._answer_refusal(error)

    def _answer_refusal(self, error: ServiceError) -> None:
        _log.info("refused", extra={"status": error.status, "reason": error.slug})
        document = self._render(error)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % len(document)),
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        if not self.transport.is_closing():
            self.transport.write(STATUS_LINE[error.status] + lines + b"\r\n" + document)
            self._linger()

    # Clocks: headers, and the unread rest of an answered request's body, have to come to an end.

    def _watch(self) -> None:
        """Have the clock run that fits: for headers or a rest to drop, for an idle connection, or none."""
        if self._deaf or self.transport.is_closing():
            return
        awaited = self._in_headers or (self._body is not None and self._body.unwanted)
        if awaited and not self.flow.read_paused:
            if self._deadline is None:
                self._deadline = self.loop.call_later(self._limits.header_timeout_seconds, self._late)
            return
        self._unset_deadline()
        if self._idle() and not awaited and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _unset_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self._in_headers:
            seconds = self._limits.header_timeout_seconds
            self._refuse(SlowHeaders(f"the headers did not arrive within {seconds:g} s"))
        else:
            self.transport.abort()
