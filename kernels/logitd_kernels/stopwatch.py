"""Where time goes: a stopwatch with named laps."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by name, on the monotonic clock.

    Args:
        names: the laps there are; each starts at 0.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.seconds = dict.fromkeys(names, 0.0)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of a block to a lap."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - began
