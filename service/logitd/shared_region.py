"""One region of shared memory: read and written at offsets of a file that is kept open.

It is never mapped, so that a caller who truncates it gets an error and the service no SIGBUS. What was read is a copy,
which no caller can change any more.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from logitd.errors import Malformed, NotFound, ServiceError


@dataclass(frozen=True)
class RegionStatus:
    """A region as it was registered."""

    name: str
    key: str
    offset: int
    byte_size: int


class Region:
    """A registered region. Its file is closed once it is unregistered and nobody uses it any more.

    Args:
        status: see below.
        file: open for reading and writing; the region's from now on.
        clock: monotonic, seconds.

    Attributes:
        status: as it was registered.
    """

    def __init__(self, status: RegionStatus, file: int, clock: Callable[[], float]) -> None:
        self.status = status
        self._file = file
        self._clock = clock
        self._last_use = clock()
        self._users = 0
        self._leaving = False
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether its file is."""
        return not self._leaving or self._users > 0

    @property
    def idle_seconds(self) -> float:
        """How long ago it was registered or used; 0 while somebody uses it."""
        with self._lock:
            return 0.0 if self._users else self._clock() - self._last_use

    @property
    def is_unlinked(self) -> bool:
        """Whether its file has no name any more: nobody can open it again. To be asked while it is registered."""
        return os.fstat(self._file).st_nlink == 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the file open until the block ends.

        Raises:
            NotFound: it is closed already.
        """
        with self._lock:
            if not self.is_open:
                raise missing(self.status.name)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._last_use = self._clock()
                self._close_if_unused()

    def leave(self) -> None:
        """Close the file, or leave that to its last user."""
        with self._lock:
            self._leaving = True
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if not self.is_open:
            os.close(self._file)

    def read(self, offset: int, buffer: memoryview) -> memoryview:
        """Copy bytes of the region into a buffer, as many as it has; returns it.

        Raises:
            Malformed: they lie outside the region, or the file has become shorter.
        """
        byte_size = len(buffer)
        with self.held():
            place, done = self._place(offset, byte_size), 0
            while done < byte_size:
                count = os.preadv(self._file, [buffer[done:]], place + done)
                if count == 0:
                    raise self._shorter()
                done += count
        return buffer

    def write(self, offset: int, chunks: Sequence[bytes | memoryview]) -> None:
        """Write bytes into the region.

        Raises:
            Malformed: they lie outside the region, the file has become shorter, or there is no memory for them.
        """
        with self.held():
            place = self._place(offset, sum(map(len, chunks)))
            try:
                for chunk in chunks:
                    place = self._written(memoryview(chunk), place)
            except OSError as error:
                raise Malformed.at(self.status.name, f"cannot be written: {os.strerror(error.errno or 0)}") from None

    def _written(self, view: memoryview, place: int) -> int:
        while len(view):
            count = os.pwritev(self._file, [view], place)
            view, place = view[count:], place + count
        return place

    def _place(self, offset: int, byte_size: int) -> int:
        if offset + byte_size > self.status.byte_size:
            raise Malformed.at(
                self.status.name,
                f"offset {offset} + {byte_size} bytes exceed the region's {self.status.byte_size}",
            )
        begin = self.status.offset + offset
        if begin + byte_size > os.fstat(self._file).st_size:  # a write would make it longer again
            raise self._shorter()
        return begin

    def _shorter(self) -> ServiceError:
        return Malformed.at(self.status.name, "the shared memory has become shorter than it was registered")


def missing(name: str) -> NotFound:
    """Return the error of a region that nobody has registered."""
    return NotFound(f"Unable to find shared memory region: '{name[:60]}'")
