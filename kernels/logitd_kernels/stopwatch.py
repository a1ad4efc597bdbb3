"""Where time goes: a stopwatch with named laps."""

import time
from collections.abc import Iterable


class Stopwatch:
    """Seconds by name, on the monotonic clock.

    Args:
        names: the laps there are; each starts at 0.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.seconds = dict.fromkeys(names, 0.0)

    def __call__(self, name: str) -> "_Lap":
        """Add the time of a block to a lap."""
        return _Lap(self.seconds, name)


class _Lap:
    """The time of a block; a class, for it is a third of a generator's cost."""

    __slots__ = ("_began", "_name", "_seconds")

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        self._seconds[self._name] += time.perf_counter() - self._began
