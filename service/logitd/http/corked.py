"""A transport that puts the head of an answer and what follows at once into one write."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

_JOINED_BYTES = 1 << 16  # copying so much costs less than a second system call


class Corked:
    """Holds a write back until the next one, or the end of the event loop's turn.

    uvicorn writes head and body of an answer one after the other: two system calls, and a client that wakes up twice.

    Args:
        transport: what is written to; everything else is asked of it directly.
        loop: whose turns count.
        writing: called when something is written, once a turn.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, writing: Callable[[], None]
    ) -> None:
        self._transport, self._loop, self._writing = transport, loop, writing
        self._held: bytes | bytearray | memoryview | None = None
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._transport, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, now or together with the next."""
        held = self._held
        if held is None:
            self._held = data
            self._writing()
            self._loop.call_soon(self._flush)
            return
        self._held = None
        if len(data) <= _JOINED_BYTES:
            self._transport.write(b"".join((held, data)))
        else:
            self._transport.writelines((held, data))

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write some pieces."""
        self._flush()
        self._writing()
        self._transport.writelines(pieces)

    def write_eof(self) -> None:
        """Write what is held, and nothing more."""
        self._flush()
        self._transport.write_eof()

    def abort(self) -> None:
        """Close at once; what is held is not written."""
        self._held = None
        self._transport.abort()

    def close(self) -> None:
        """Write what is held, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)
