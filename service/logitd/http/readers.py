"""Who the transport reads for: a buffered protocol that says, read by read, where the bytes go.

It is an object beside the HTTP protocol, because uvloop hands bytes to whatever is an `asyncio.Protocol` as well.
"""

import asyncio
from typing import Protocol

SCRATCH_BYTES = 32_768  # small, so that of a large body behind its headers most stays in the socket


class Owner(Protocol):
    """The HTTP protocol behind a reader."""

    def parse(self, scratch: bytearray, data: memoryview) -> None:
        """Take what was read into the scratch buffer; it is overwritten by the next read."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""

    def eof_received(self) -> None:
        """The client writes no more."""

    def pause_writing(self) -> None:
        """The client reads too slowly."""

    def resume_writing(self) -> None:
        """It has caught up."""


class Target(Protocol):
    """A body that is received in place."""

    def space(self) -> memoryview:
        """Return where the next bytes go."""

    def filled(self, count: int) -> None:
        """Count bytes that were received in place."""


class Reader(asyncio.BufferedProtocol):
    """Reads for the parser, and for a body while there is one that wants its bytes in place.

    A buffer is asked for and filled in one go: it cannot change its mind between the two. (On Windows it could.)

    Args:
        owner: takes what is read for the parser.
        scratch: where that is read to; the connections of one event loop share it.

    Attributes:
        target: the body that is received in place.
    """

    def __init__(self, owner: Owner, scratch: bytearray) -> None:
        self.target: Target | None = None
        self._owner = owner
        self._scratch = scratch
        self._view = memoryview(scratch)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._view if self.target is None else self.target.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Pass them on."""
        if self.target is None:
            self._owner.parse(self._scratch, self._view[:nbytes])
        else:
            self.target.filled(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._owner.connection_lost(exc)

    def eof_received(self) -> None:
        """Have the transport close, as uvicorn does."""
        self._owner.eof_received()

    def pause_writing(self) -> None:
        """Stop whoever writes."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """Let them go on."""
        self._owner.resume_writing()
