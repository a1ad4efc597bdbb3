"""When to try again and how long to wait: one pure policy for both clients."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from logitd.errors import ApiError, ClientError, ConnectionFailed

_PASSING = frozenset({429, 502, 503, 504})  # statuses that may pass by themselves
_FIRST_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 5.0
_LONGEST_RETRY_AFTER_SECONDS = 30.0


@dataclass(frozen=True)
class Retry:
    """Exponential backoff with jitter, or what Retry-After asks for, capped.

    Only a call that may safely run twice is repeated; any call is when nothing of it left this machine. A timeout is
    the caller's own limit and ends the call.

    Args:
        times: how many tries may follow the first, ≥ 0.
        random: the jitter, uniform in [0, 1).
    """

    times: int
    random: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"retries must be at least 0, got {self.times}")

    def delay_seconds(self, failed: int, error: ClientError, *, repeatable: bool) -> float | None:
        """Return the wait before the next try, None to give up.

        Args:
            failed: how many tries have failed, the last with `error`.
            error: what the last try ended in.
            repeatable: whether the call may run twice.
        """
        if failed > self.times or not _may_pass(error) or not (repeatable or _unsent(error)):
            return None
        if isinstance(error, ApiError) and error.retry_after_seconds is not None:
            return min(error.retry_after_seconds, _LONGEST_RETRY_AFTER_SECONDS)
        longest = min(_FIRST_SECONDS * 2.0 ** min(failed - 1, 10), _LONGEST_BACKOFF_SECONDS)
        return longest * (1 + self.random()) / 2


def _may_pass(error: ClientError) -> bool:
    return isinstance(error, ConnectionFailed) or (isinstance(error, ApiError) and error.status in _PASSING)


def _unsent(error: ClientError) -> bool:
    return isinstance(error.__cause__, httpx.ConnectError)
