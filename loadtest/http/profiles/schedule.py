"""When requests are due, and what each of them is: decided before anything is sent, whatever becomes of it."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """A time with one rate.

    Attributes:
        name: as in reports.
        seconds: how long it lasts.
        rate: requests due each second.
        settle_seconds: its beginning, which is recorded but not judged.
    """

    name: str
    seconds: float
    rate: float
    settle_seconds: float = 0.0

    @property
    def requests(self) -> int:
        """How many are due in it."""
        return round(self.rate * self.seconds)

    def due_seconds(self) -> Iterator[float]:
        """Yield when each request is due, from the phase's beginning: evenly, the first at 0."""
        return (number / self.rate for number in range(self.requests))


def cycle(weights: Mapping[str, int], seed: int) -> list[str]:
    """Return names in a shuffled order, each as often as its weight says; the same order for the same seed.

    Raises:
        ValueError: no name, or a weight that is not positive.
    """
    if not weights or min(weights.values()) < 1:
        raise ValueError(f"expected kinds of requests with weights of at least 1, got {dict(weights)}")
    names = [name for name, weight in weights.items() for _ in range(weight)]
    random.Random(seed).shuffle(names)
    return names
