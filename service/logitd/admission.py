"""Who may come in: requests and the bytes of their bodies are counted before a byte is read."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logitd.errors import PayloadTooLarge, Shed
from logitd.settings import Settings

_REMEMBERED_SECONDS = 5.0
_TELLING = 8  # requests that must have been answered lately for a rate
_PATIENCE = 0.5  # of a deadline: what is let in is to be answered, not to be nearly answered
_LONGEST_WAIT_SECONDS = 60


class Admission:
    """Permits. To be used on the event loop alone.

    Args:
        settings: how many requests and bytes.
        clock: monotonic, seconds.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._answered: deque[float] = deque(maxlen=4096)  # when requests were answered
        self.requests = 0
        self.bytes = 0

    @contextmanager
    def entered(self, declared_bytes: int | None, seconds: float = math.inf) -> Iterator[None]:
        """Count a request in until it is answered.

        Args:
            declared_bytes: of its body; None for a body that comes in chunks, which counts for as much as it may have.
            seconds: how long it may take. Who could not be answered by then, as things go, had better not come in.
        Raises:
            PayloadTooLarge: no body may be so large.
            Shed: there is no room now.
        """
        limits = self._settings
        size = limits.max_chunked_body_bytes if declared_bytes is None else declared_bytes
        if declared_bytes is not None and size > limits.max_body_bytes:
            raise PayloadTooLarge.at("body", f"at most {limits.max_body_bytes} bytes, {size} are declared")
        if self.requests >= limits.max_inflight_requests:
            raise self._shed(f"{self.requests} requests are being answered; try again later", "requests")
        if self.requests and self.bytes + size > limits.max_inflight_bytes:
            raise self._shed(f"{self.bytes} bytes of requests are being answered; try again later", "bytes")
        wait = self._drain_seconds()
        if wait and wait > _PATIENCE * seconds:
            raise self._shed(f"the {self.requests} requests that are being answered leave it no time", "wait")
        self.requests += 1
        self.bytes += size
        try:
            yield
            self._answered.append(self._clock())  # only what was answered tells how fast work is done
        finally:
            self.requests -= 1
            self.bytes -= size

    def _shed(self, detail: str, reason: str) -> Shed:
        return Shed(detail, self.retry_after_seconds(), reason)

    def retry_after_seconds(self) -> int:
        """Return after how many seconds all who are here now will be answered, as fast as others were lately."""
        wait = self._drain_seconds()
        return 1 if wait is None else max(1, min(_LONGEST_WAIT_SECONDS, math.ceil(wait)))

    def _drain_seconds(self) -> float | None:
        """Return how long all who are here now will take, None where nobody can tell."""
        now = self._clock()
        while self._answered and self._answered[0] < now - _REMEMBERED_SECONDS:
            self._answered.popleft()
        if len(self._answered) < _TELLING:
            return None
        return self.requests * (now - self._answered[0]) / len(self._answered)
