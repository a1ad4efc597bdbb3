"""Where the process stands: starting, ready, draining or failed; and whether it is alive."""

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum

BEAT_SECONDS = 0.25

_log = logging.getLogger("logitd.lifecycle")


class State(StrEnum):
    """What the service says of itself to whoever sends it work."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"


class Lifecycle:
    """The state of one process. Any thread, and a signal handler, may tell it what happened.

    Each fact is one attribute, assigned at once: there is no lock that a signal handler could find taken. A draining
    process never becomes ready again.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._warm = False
        self._draining = False
        self._failure: str | None = None
        self._beat: float | None = None
        self._silences: list[Callable[[], float]] = []

    @property
    def state(self) -> State:
        """The state: what ends a process outweighs what fails, and that what runs."""
        if self._draining:
            return State.DRAINING
        if not self._warm:
            return State.STARTING
        return State.READY if self._failure is None else State.FAILED

    @property
    def ready(self) -> bool:
        """Whether new work is welcome."""
        return self.state is State.READY

    @property
    def draining(self) -> bool:
        """Whether the process is about to end."""
        return self._draining

    @property
    def has_failed(self) -> bool:
        """Whether the last that was heard of the kernels is a failure."""
        return self._failure is not None

    def warmed(self) -> None:
        """Say that the service can answer."""
        self._warm = True

    def drain(self) -> None:
        """Say that the process will end; for good."""
        self._draining = True

    def failed(self, reason: str) -> None:
        """Say that a kernel failed: not ready until `recovered`. Idempotent; the reason is logged, never answered."""
        if self._failure is None:
            _log.error("not ready: a kernel failed", extra={"reason": reason})
        self._failure = reason

    def recovered(self) -> None:
        """Say that the kernels work again."""
        if self._failure is not None:
            _log.info("ready again: the kernels work")
        self._failure = None

    def beat(self) -> None:
        """Say that the event loop runs."""
        self._beat = self._clock()

    def watch(self, silence_seconds: Callable[[], float]) -> None:
        """Make liveness depend on something else too.

        Args:
            silence_seconds: returns how long ago it gave its last sign of life; 0 when it has nothing to do. Called
                from the admin thread; must not wait.
        """
        self._silences.append(silence_seconds)

    def silence_seconds(self) -> float:
        """Return the longest time for which the event loop, or what is watched, gave no sign of life.

        Before the first beat that is 0: warming up takes what it takes, and readiness tells of it.
        """
        loop = 0.0 if self._beat is None else self._clock() - self._beat
        return max(loop, *(silence() for silence in self._silences), 0.0)


async def beating(lifecycle: Lifecycle, lag: Callable[[float], None]) -> None:
    """Beat for as long as the event loop runs.

    Args:
        lifecycle: whose heart it is.
        lag: is told by how many seconds each beat came late.
    """
    while True:
        lifecycle.beat()
        due = time.monotonic() + BEAT_SECONDS
        await asyncio.sleep(BEAT_SECONDS)
        lag(max(0.0, time.monotonic() - due))


async def healing(
    lifecycle: Lifecycle, probe: Callable[[], None], interval_seconds: float, count: Callable[[str], None]
) -> None:
    """Test the kernels off the event loop, every so often while they have failed; a test that passes ends that.

    Args:
        lifecycle: says whether there is a failure.
        probe: computes something small and known; raises when it cannot.
        interval_seconds: between two tests.
        count: is told what each test came to: `passed` or `failed`.
    """
    while True:
        await asyncio.sleep(interval_seconds)
        if not lifecycle.has_failed:
            continue
        try:
            await asyncio.to_thread(probe)
        except Exception as error:  # whatever a kernel raises
            _log.warning("self-test failed", extra={"reason": repr(error)[:500]})
            count("failed")
        else:
            count("passed")
            lifecycle.recovered()
