"""Who may come in: requests and the bytes of their bodies are counted before a byte is read."""

import math
import time
from collections.abc import Callable
from typing import Self

from logitd.errors import PayloadTooLarge, Shed
from logitd.pace import Pace
from logitd.settings import Settings

_PATIENCE = 0.5  # of a deadline: what is let in is to be answered, not to be nearly answered
_LONGEST_WAIT_SECONDS = 60
_CROWD = 8


class Permit:
    """One request that is inside, until it leaves; as a context it leaves at the end.

    Attributes:
        competes: whether it has sent its body and wants to be computed: those who come later wait for it.
    """

    __slots__ = ("_admission", "_bytes", "competes")

    def __init__(self, admission: "Admission", size_bytes: int) -> None:
        self._admission, self._bytes = admission, size_bytes
        self.competes = False
        admission.requests += 1
        admission.bytes += size_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.leave(answered=error is None)

    def compete(self) -> None:
        """Say that the body is there."""
        if not self.competes:
            self.competes = True
            self._admission.competing += 1

    def hold(self, size_bytes: int) -> None:
        """Count the body for what it takes by now: what it unpacks to is not what was declared.

        Raises:
            Shed: there is no room for that; it counts for what it did.
        """
        self._admission.check_bytes(size_bytes - self._bytes, others=self._admission.requests - 1)
        self._admission.bytes += size_bytes - self._bytes
        self._bytes = size_bytes

    def leave(self, *, answered: bool) -> None:
        """Go, once; only what was answered tells how fast work is done."""
        admission = self._admission
        admission.requests -= 1
        admission.bytes -= self._bytes
        if self.competes:
            admission.competing -= 1
            if answered:
                admission.ended()


class Admission:
    """Permits. To be used on the event loop alone.

    Args:
        settings: how many requests and bytes.
        clock: monotonic, seconds.

    Attributes:
        requests, bytes: who is inside.
        competing: how many of them compete.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._pace = Pace()
        self.requests = 0
        self.bytes = 0
        self.competing = 0

    def entered(self, declared_bytes: int | None, seconds: float = math.inf) -> Permit:
        """Count a request in until it leaves.

        Args:
            declared_bytes: of its body; None for a body that comes in chunks, which counts for as much as it may have.
            seconds: how long it may take. Who could not be answered by then, as things go, had better not come in.
        Raises:
            PayloadTooLarge: no body may be so large.
            Shed: there is no room now.
        """
        return Permit(self, self._admissible(declared_bytes, seconds))

    def ended(self) -> None:
        """Take note of one that competed and was answered."""
        self._pace.ended(1, self._clock())

    def retry_after_seconds(self) -> int:
        """Return after how many seconds those who compete now will have been answered."""
        return max(1, min(_LONGEST_WAIT_SECONDS, math.ceil(self._wait_seconds())))

    def check_bytes(self, more_bytes: int, others: int) -> None:
        """Refuse bytes for which there is no room; who has no `others` beside it may have as many as it likes.

        Raises:
            Shed.
        """
        if others and more_bytes > 0 and self.bytes + more_bytes > self._settings.max_inflight_bytes:
            raise self._shed(f"{self.bytes} bytes of requests are being answered; try again later", "bytes_budget")

    def _admissible(self, declared_bytes: int | None, seconds: float) -> int:
        limits = self._settings
        size = limits.max_chunked_body_bytes if declared_bytes is None else declared_bytes
        if declared_bytes is not None and size > limits.max_body_bytes:
            raise PayloadTooLarge.at("body", f"at most {limits.max_body_bytes} bytes, {size} are declared")
        if self.requests >= limits.max_inflight_requests:
            raise self._shed(f"{self.requests} requests are being answered; try again later", "queue_full")
        self.check_bytes(size, others=self.requests)
        wait = self._wait_seconds()
        if wait > _PATIENCE * seconds:
            raise self._shed(f"those before it take {wait:.1f} s; that leaves it no time", "wait")
        return size

    def _wait_seconds(self) -> float:
        """Return how long those who compete now will take; 0 where they are few, or too little is known."""
        if self.competing < _CROWD:  # how fast they are answered tells how often somebody asks, and nothing of capacity
            self._pace.waits_no_more()
            return 0.0
        now = self._clock()
        self._pace.waits(now)
        return self._pace.seconds(self.competing, now) or 0.0

    def _shed(self, detail: str, reason: str) -> Shed:
        return Shed(detail, self.retry_after_seconds(), reason)
