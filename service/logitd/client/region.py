"""Shared memory that this process makes, for a service on the same machine to read."""

import os
import secrets
import threading
from contextlib import suppress

_DIRECTORY = "/dev/shm"
_LEAST_BYTES = 1 << 20
_KEPT = 8  # free regions; as many calls at a time find one


class Region:
    """A file in /dev/shm that only this user can read. Its name is gone as soon as the service has opened it.

    Args:
        byte_size: how much fits; all of it is there from the start.
    Raises:
        OSError: there is no such memory here, or not so much.
    """

    def __init__(self, byte_size: int) -> None:
        self.name = f"logitd-{os.getpid()}-{secrets.token_hex(8)}"
        self.byte_size = byte_size
        self._path = f"{_DIRECTORY}/{self.name}"
        self._file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(self._file, 0, byte_size)
        except OSError:
            self.close()
            raise

    def put(self, offset: int, data: memoryview) -> None:
        """Write bytes."""
        data = data.cast("B")
        while data.nbytes:
            count = os.pwrite(self._file, data, offset)
            data, offset = data[count:], offset + count

    def unlink(self) -> None:
        """Remove the name; who has opened it keeps it."""
        with suppress(OSError):
            os.unlink(self._path)

    def close(self) -> None:
        """Give it back."""
        self.unlink()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Pool:
    """Regions that are free for the next call. Threads may share it."""

    def __init__(self) -> None:
        self._free: list[Region] = []
        self._lock = threading.Lock()

    def take(self, byte_size: int) -> Region | None:
        """Return the smallest free region that is large enough, None if there is none."""
        with self._lock:
            fitting = [region for region in self._free if region.byte_size >= byte_size]
            if not fitting:
                return None
            region = min(fitting, key=lambda region: region.byte_size)
            self._free.remove(region)
            return region

    def give(self, region: Region) -> list[Region]:
        """Put a region back; returns those that are too many now, the smallest, for the caller to end."""
        with self._lock:
            self._free.append(region)
            self._free.sort(key=lambda region: region.byte_size)
            surplus, self._free = self._free[:-_KEPT], self._free[-_KEPT:]
            return surplus

    def empty(self) -> list[Region]:
        """Take out all of them."""
        with self._lock:
            free, self._free = self._free, []
            return free


def room_for(byte_size: int) -> int:
    """Return the size of a new region for so many bytes: a power of two, so that rows of one model find it again."""
    return max(_LEAST_BYTES, 1 << (byte_size - 1).bit_length())
