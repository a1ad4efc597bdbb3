"""A kind of request: what is sent, and which answers are as they should be."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from loadtest.http.profiles.connection import Answer

OK = frozenset({200})


class Ask(Protocol):
    """Sends one request, records what becomes of it, and returns its answer; status 0 or 1 where there was none."""

    def __call__(
        self, request: bytes, expected: frozenset[int] = OK, leave_seconds: float | None = None
    ) -> Awaitable[Answer]:
        """Send.

        Args:
            request: head and body.
            expected: statuses that are as they should be.
            leave_seconds: after which the connection is cut on purpose; None to stay.
        """
        ...


Conversation = Callable[[Ask], Awaitable[None]]


@dataclass(frozen=True)
class Kind:
    """What is sent when a request of this kind is due.

    Attributes:
        name: as in profiles and reports.
        talk: asks once, or several times one after the other.
    """

    name: str
    talk: Conversation


def single(
    name: str, requests: Sequence[bytes], expected: frozenset[int] = OK, leave_seconds: float | None = None
) -> Kind:
    """Return the kind of which each is one request, taken in turn."""
    numbers = count()

    async def talk(ask: Ask) -> None:
        await ask(requests[next(numbers) % len(requests)], expected, leave_seconds)

    return Kind(name, talk)
