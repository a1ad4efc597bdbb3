"""How fast a queue moves, and so how long who comes now will wait."""

from collections import deque

_REMEMBERED_SECONDS = 5.0
_REMEMBERED = 512  # works: few enough that a rate that falls is soon known
_TELLING = 8  # works that must have ended before they tell anything


class Pace:
    """The rate at which work ends while other work waits; when none waits it says nothing of capacity.

    Pure, and for one thread: the caller tells the time, in seconds on one clock.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._ended: deque[float] = deque(maxlen=_REMEMBERED)

    def waits(self, now: float) -> None:
        """Say that work waits."""
        if self._since is None:
            self._since = now

    def waits_no_more(self) -> None:
        """Say that the queue is empty."""
        self._since = None
        self._ended.clear()

    def ended(self, count: int, now: float) -> None:
        """Count works that ended."""
        if self._since is not None:
            self._ended.extend([now] * count)

    def seconds(self, waiting: int, now: float) -> float | None:
        """Return how long so many works will take, None where too few have ended to tell."""
        while self._ended and self._ended[0] < now - _REMEMBERED_SECONDS:
            self._ended.popleft()
        if self._since is None or len(self._ended) < _TELLING:
            return None
        began = max(self._since, now - _REMEMBERED_SECONDS)
        if len(self._ended) == self._ended.maxlen:
            began = self._ended[0]
        return waiting * (now - began) / len(self._ended)
