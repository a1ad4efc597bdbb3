"""Fair timing on a shared machine: the contenders take turns, and what counts is medians and ratios within a run."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_BLOCK = 1e-3  # a turn lasts at least this long, so that the clock and the cold caches it begins with weigh little
_LONG = 4e-3  # who takes longer sits out rounds
_FEWEST = 3

Clock = Callable[[], float]
WALL: Clock = time.perf_counter
CPU: Clock = time.process_time  # of all threads of this process: what other processes do to a turn is not in it

Times = Mapping[int, float]


@dataclass(frozen=True)
class Contender:
    """Something to be timed.

    Attributes:
        name: as in the table.
        call: does the work of the i-th block of rows, any i ≥ 0; returns the tokens that it drew, if it draws.
        batch: how many rows a call does; times are reported for one row.
        ours: whether it is code of this repository.
        before: runs before each turn, outside the clock.
    """

    name: str
    call: Callable[[int], Any]
    batch: int = 1
    ours: bool = False
    before: Callable[[], None] | None = None


@dataclass(frozen=True)
class Budget:
    """When a measurement has seen enough: after `rounds` and `least` seconds, and in any case after `most` seconds."""

    rounds: int = 20
    least: float = 0.3
    most: float = 2.0

    def spent(self, rounds: int, elapsed: float) -> bool:
        """Whether to stop; three rounds are always done."""
        return rounds >= _FEWEST and (elapsed >= self.most or (rounds >= self.rounds and elapsed >= self.least))

    def every(self, turn: float) -> int:
        """Return in which rounds a contender takes its turn, of so many seconds: every n-th, at least five in all."""
        return max(1, min(round(turn / _LONG), self.rounds // 5))


@dataclass(frozen=True)
class Spread:
    """Median and quintiles."""

    median: float
    p20: float
    p80: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of some values, interpolated linearly between neighbours."""
        p20, median, p80 = np.quantile(values, [0.2, 0.5, 0.8]).tolist()
        return cls(median, p20, p80)


class Turn:
    """One contender's turns: warmed up, and sized to last a millisecond or one call."""

    def __init__(self, contender: Contender, clock: Clock) -> None:
        self.contender = contender
        self._clock = clock
        self._next = 0
        self._calls = 1
        once = min(self._run(), self._run())
        self._calls = max(1, round(_BLOCK / max(once, 1e-7)))
        self.lasts = self._calls * once

    def take(self) -> float:
        """Take one turn and return its seconds a row."""
        return self._run() / self._calls / self.contender.batch

    def _run(self) -> float:
        if self.contender.before:
            self.contender.before()
        call, first, last = self.contender.call, self._next, self._next + self._calls
        self._next = last
        gc.collect(0)
        gc.disable()
        try:
            start = self._clock()
            for index in range(first, last):
                call(index)
            return self._clock() - start
        finally:
            gc.enable()


def alternate(contenders: Sequence[Contender], budget: Budget, clock: Clock = CPU) -> dict[str, Times]:
    """Time contenders in turns: one turn each a round, a different one first every round.

    Returns:
        For each name its seconds a row by round. A slow contender sits out rounds, but never the first.
    """
    turns = [Turn(contender, clock) for contender in contenders]
    seconds: dict[str, dict[int, float]] = {turn.contender.name: {} for turn in turns}
    start = WALL()
    done = 0
    while not budget.spent(done, WALL() - start):
        for place in range(len(turns)):
            turn = turns[(done + place) % len(turns)]
            if done % budget.every(turn.lasts) == 0:
                seconds[turn.contender.name][done] = turn.take()
        done += 1
    return dict(seconds)


def spread(seconds: Times) -> Spread:
    """Return the spread over the rounds."""
    return Spread.of(list(seconds.values()))


def ratio(over: Times, under: Times) -> Spread:
    """Return the spread of the ratio over the rounds that both took part in: what slowed both at one moment cancels."""
    return Spread.of([over[moment] / under[moment] for moment in over if moment in under])


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the least-squares slope of log(seconds) over log(size): 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
