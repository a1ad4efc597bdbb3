"""Bytes to requests: httptools reads the headers and small bodies; what passes it by goes to its `Body`."""

from abc import ABC, abstractmethod
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from logitd.errors import Malformed, PayloadTooLarge
from logitd.http.framing import check_size, declared_length, too_large
from logitd.http.limits import Limits
from logitd.http.readers import Target
from logitd.http.receiving import RECEIVE_INTO, Body

_SPLIT_BYTES = 4096  # smaller reads go to the parser whole
_CHUNK_OVERHEAD_BYTES = 32  # framing of one chunk that nobody can object to


class Parsing(HttpToolsProtocol, ABC):
    """The parsing half of a connection.

    The parser would wait for a body that passes it by, so a fresh one is there for the next request.

    Args:
        limits: of every request.
        uvicorn: what uvicorn gives a protocol.
    """

    def __init__(self, limits: Limits, **uvicorn: Any) -> None:  # noqa: ANN401
        super().__init__(**uvicorn)
        self._limits = limits
        self._application = self.app
        self._body: Body | None = None  # the one that is arriving
        self._in_headers = False
        self._header_bytes = -1
        self._fed = 0

    def _take(self, scratch: bytearray, data: memoryview) -> None:
        if self._body is None and len(data) >= _SPLIT_BYTES:
            # Cut behind the headers: a body that follows them need not go through the parser.
            end = scratch.find(b"\r\n\r\n", 0, len(data)) + 4
            if end > 3:
                self._take_piece(data[:end])
                data = data[end:]
        self._take_piece(data)

    def _take_piece(self, data: memoryview) -> None:
        while data and self.parser is not None:
            if self._body is not None and self._body.staged:
                data = self._body.take(data)
                if self._body.complete:
                    self._body = None
            else:
                data = self._feed(data)

    def _feed(self, data: memoryview) -> memoryview:
        """Feed the parser; returns what it left."""
        rest = data[:0]
        self._fed = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # Not what this service speaks: an ordinary request, and the parser would hear nothing after it.
            rest = data[upgrade.args[0] :]
            self._fresh_parser()
        if self._in_headers or self._body is not None:
            self._unfinished(len(data))
        return rest

    def _unfinished(self, fed: int) -> None:
        """Bound what the parser keeps or skips: an unfinished header, and what chunks bring beside their bytes."""
        if self._in_headers:
            # The read in which they begin is not counted: it may be full of other requests.
            self._header_bytes = 0 if self._header_bytes < 0 else self._header_bytes + fed
            if self._header_bytes > self._limits.max_header_bytes:
                raise too_large(self._limits)
        body = self._body
        if body is not None and body.staged:
            self._fresh_parser()  # the one that waits for this body is not going to get it
        elif body is not None and body.declared is None:
            body.overhead_bytes = 0 if body.overhead_bytes < 0 else body.overhead_bytes + fed
            allowed = self._limits.max_header_bytes + _CHUNK_OVERHEAD_BYTES * body.chunks
            if body.overhead_bytes - body.received > allowed:
                raise Malformed.at("body", "its chunks say more than they bring")

    def _should_upgrade(self) -> bool:
        return False  # there are no WebSockets here: a request to upgrade is an ordinary one

    def _fresh_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's: bytes after a last request

    @abstractmethod
    def receive_in_place(self, target: Target | None) -> None:
        """Read for a body; None is the parser again, after a body that came or was given up."""

    @abstractmethod
    def give_way(self) -> None:
        """Read on after those who wait."""

    @abstractmethod
    def soften(self, cycle: RequestResponseCycle) -> None:
        """Have a request that ends its connection do so gently, should its body still be on its way."""

    def hold(self) -> None:
        """Read no more until the application asks."""
        if not self.transport.is_closing():
            self.flow.pause_reading()

    def _hold_unless_asked(self) -> None:
        body = self._body
        if body is not None and body.staged and not body.asked_for and not body.cycle.response_complete:
            self.hold()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_headers = True
        self._header_bytes = -1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the request, its body still to come."""
        limits = self._limits
        in_one_read = self._header_bytes < 0
        check_size(self.url, self.headers, limits, add_up=not in_one_read or self._fed > limits.max_header_bytes)
        declared = declared_length(self.headers, self.parser.get_http_version())
        passes = self.parser.should_upgrade()  # httptools takes what follows such headers for another protocol's
        if passes and declared is None:
            raise Malformed.at("upgrade", "goes with no chunked body")
        self._in_headers = False
        if declared == 0:
            super().on_headers_complete()
            return
        staged = declared is not None and (passes or declared > limits.staged_body_bytes)
        body = Body(self, self._application, declared, staged)
        self.app = body.answer
        super().on_headers_complete()
        self.app = self._application
        self._body = body
        body.cycle = self.cycle
        self.headers = []  # what follows a chunked body is no header of the request
        if staged:
            self.cycle.scope["extensions"] = {RECEIVE_INTO: body.receive_into}  # type: ignore[dict-item]
            self.loop.call_soon(self._hold_unless_asked)  # which comes after the application's first step

    def on_chunk_header(self) -> None:
        """Count the chunks of a body."""
        assert self._body is not None
        self._body.chunks += 1
        if self._body.chunks > self._limits.max_chunks:
            raise PayloadTooLarge.at("body", f"at most {self._limits.max_chunks} chunks")

    def on_body(self, body: bytes) -> None:
        """Count and keep what came of a body."""
        assert self._body is not None
        self._body.received += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request's body, unless it passes the parser by and is still to come."""
        body = self._body
        if body is None or body.declared is None or body.received == body.declared:
            super().on_message_complete()
            if body is not None:
                body.complete = True
                self._body = None
