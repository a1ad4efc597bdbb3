"""Ending a connection whose client still sends, so that it can read its answer first."""

import asyncio
from collections.abc import Callable

LINGER_SECONDS = 2.0  # closing at once would reset the connection, and with it the answer that is on its way


class Closing:
    """What one request's cycle sees of the transport: `close` is the protocol's to decide."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


def linger(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle:
    """Say that nothing more is written, and end the connection when the client has, or soon."""
    if transport.can_write_eof():
        transport.write_eof()
    return loop.call_later(LINGER_SECONDS, transport.abort)
