"""Regions of system shared memory that callers on this machine register, instead of sending tensors.

A region is a file that the caller has made in /dev/shm; see `shared_region` for how it is read and written.
"""

import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

from logitd.errors import Malformed, NotFound, ServiceError
from logitd.shared_region import Region, RegionStatus, missing

_DIRECTORY = "/dev/shm"
_NAME = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9._-]{1,200}")
_RESERVED = ("sem.", "logitd_internal")  # POSIX semaphores; what the service may one day keep for itself
_LARGEST = 1 << 62

_log = logging.getLogger("logitd.shared_memory")


class SharedMemory:
    """The registered regions.

    Args:
        max_regions: most of them at once.
        max_bytes: most bytes in all of them.
        idle_seconds: one that nobody has used for so long is given up when another is registered, as after a client
            that crashed: if its file has no name any more, or the other finds no room.
        clock: monotonic, seconds.
    """

    def __init__(
        self, max_regions: int, max_bytes: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_regions, self._max_bytes = max_regions, max_bytes
        self._idle_seconds, self._clock = idle_seconds, clock
        self._regions: dict[str, Region] = {}
        self._left: list[Region] = []  # unregistered and still in use: their files are open, so they count
        self._lock = threading.Lock()  # the event loop registers, compute threads use

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a region.

        Args:
            name: how requests will name it.
            key: of the shared memory, as given to shm_open; one leading slash is optional.
            offset: where in it the region begins, bytes.
            byte_size: of the region.
        Raises:
            Malformed: a bad name or key, one that is taken, a region beyond the shared memory, or too much of it.
            NotFound: there is no such shared memory that this service may use.
        """
        check_name(name)
        if not 0 <= offset < _LARGEST or not 1 <= byte_size < _LARGEST:
            raise Malformed.at("byte_size", "must be at least 1, and offset at least 0")
        file = _opened(key, offset + byte_size)
        try:
            with self._lock:
                self._make_room(name, byte_size)
                self._regions[name] = Region(RegionStatus(name, key, offset, byte_size), file, self._clock)
        except ServiceError:
            os.close(file)
            raise

    def _make_room(self, name: str, byte_size: int) -> None:
        """Give up idle regions: those without a file, and of the others the longest unused, until there is room."""
        idle = [region for region in self._regions.values() if region.idle_seconds > self._idle_seconds]
        idle.sort(key=lambda region: region.idle_seconds, reverse=True)
        for region in [region for region in idle if region.is_unlinked]:
            self._give_up(region)
            idle.remove(region)
        if name in self._regions:
            raise Malformed.at("name", f"shared memory region '{name}' already in manager")
        if (refusal := self._refusal(byte_size, without=idle)) is not None:
            raise refusal
        while self._refusal(byte_size) is not None:
            self._give_up(idle.pop(0))

    def _refusal(self, byte_size: int, without: Sequence[Region] = ()) -> ServiceError | None:
        """Return why there is no room for so many bytes, even without some regions."""
        self._left = [region for region in self._left if region.is_open]
        there = [region for region in (*self._regions.values(), *self._left) if region not in without]
        if len(there) >= self._max_regions:
            return Malformed.at("name", f"at most {self._max_regions} regions; unregister some")
        held = sum(region.status.byte_size for region in there)
        if held + byte_size > self._max_bytes:
            return Malformed.at("byte_size", f"at most {self._max_bytes} bytes in all regions, {held} are registered")
        return None

    def _give_up(self, region: Region) -> None:
        name = region.status.name
        _log.info(
            "shared memory: idle region forgotten",
            extra={"region": name, "idle_seconds": round(region.idle_seconds, 3)},
        )
        self._forget(name)

    def _forget(self, name: str) -> None:
        region = self._regions.pop(name)
        region.leave()
        self._left.append(region)

    def status(self, name: str | None = None) -> list[dict[str, str | int]]:
        """Return what is registered: one region, or all.

        Raises:
            NotFound: there is no region of that name.
        """
        with self._lock:
            regions = [self._found(name)] if name is not None else list(self._regions.values())
        return [asdict(region.status) for region in regions]

    def unregister(self, name: str | None = None) -> None:
        """Forget one region, or all; one that is in use is closed by its last user. An unknown name is no error."""
        with self._lock:
            names = [name] if name is not None else list(self._regions)
            for one in names:
                if one in self._regions:
                    self._forget(one)

    @contextmanager
    def used(self, names: Iterable[str]) -> Iterator[Mapping[str, Region]]:
        """Keep regions usable until the block ends, whoever unregisters them meanwhile.

        Raises:
            NotFound: there is no region of one of the names.
        """
        with ExitStack() as holds:
            with self._lock:
                regions = {name: self._found(name) for name in names}
                for region in regions.values():
                    holds.enter_context(region.held())
            yield regions

    def _found(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:
            raise missing(name)
        return region


def check_name(name: str, path: str = "name") -> None:
    """Refuse what is no plain file name.

    Raises:
        Malformed: naming `path`.
    """
    if not _NAME.fullmatch(name) or name.startswith(_RESERVED):
        raise Malformed.at(path, "must be 1 to 200 of A-Z a-z 0-9 . _ -, without a leading or a double dot")


def _opened(key: str, end: int) -> int:
    plain = key.removeprefix("/")
    check_name(plain, "key")
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    absent = NotFound("key: no shared memory of that name that this service may read and write")
    try:
        file = os.open(f"{_DIRECTORY}/{plain}", flags)
    except OSError:
        raise absent from None
    found = os.fstat(file)
    try:
        # The caller's own, by the only sign there is: a service with more rights must not lend them.
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise absent
        if end > found.st_size:
            raise Malformed.at("byte_size", "offset + byte_size exceed the shared memory")
    except (NotFound, Malformed):
        os.close(file)
        raise
    return file
