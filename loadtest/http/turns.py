"""Contenders take turns, so that what slows the machine for a while slows all of them."""

from collections.abc import Callable, Sequence

from loadtest.http.client import Result
from loadtest.http.report import Figure

Turn = tuple[Figure, Callable[[float], Result]]  # what is asked for so many seconds


def take(turns: Sequence[Turn], rounds: int, seconds: float) -> None:
    """Let each take its turn in every round; fills the figures."""
    for number in range(rounds + 1):
        for figure, run in turns:
            result = run(seconds if number else seconds / 4)
            if number:  # the first round warms up
                figure.rates.append(result.rate)
                figure.latencies_seconds += result.latencies_seconds
        print(".", end="", flush=True)
    print()
