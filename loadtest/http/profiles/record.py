"""What became of every request, in columns of 21 bytes a request: an hour fits in memory, figures are exact."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
from loadtest.http.profiles.schedule import Phase
from numpy.typing import NDArray

NO_ANSWER, TOO_LATE, LEFT = 0, 1, 499  # in place of a status: cut off; given up by this client; left on purpose
SHED = frozenset({429, 503})
_NAMES = {NO_ANSWER: "no answer", TOO_LATE: "too late", LEFT: "left"}


def code_name(code: int) -> str:
    """Return a status, or what stands in its place, as people read it."""
    return _NAMES.get(code, str(code))


class Verdict(IntEnum):
    """An answer as expected; one that turns away for lack of room; anything else."""

    EXPECTED = 0
    SHED = 1
    ERROR = 2


def verdict(code: int, expected: frozenset[int]) -> Verdict:
    """Judge an answer by its status and the ones that its kind of request expects."""
    if code in expected:
        return Verdict.EXPECTED
    return Verdict.SHED if code in SHED else Verdict.ERROR


@dataclass(frozen=True)
class Columns:
    """A choice of requests, one entry each.

    Attributes:
        due: seconds from the run's beginning at which it was to be sent.
        latency: seconds from then to the end of its answer.
        lag: seconds from then until it was sent.
        code, kind, phase, verdict: its status, the places of its kind and phase, and a `Verdict`.
    """

    due: NDArray[np.float64]
    latency: NDArray[np.float32]
    lag: NDArray[np.float32]
    code: NDArray[np.uint16]
    kind: NDArray[np.uint8]
    phase: NDArray[np.uint8]
    verdict: NDArray[np.uint8]

    def where(self, chosen: NDArray[np.bool_]) -> "Columns":
        """Return those that are chosen."""
        return Columns(*(column[chosen] for column in vars(self).values()))

    def __len__(self) -> int:
        return len(self.due)


@dataclass(frozen=True)
class Span:
    """A phase as it was.

    Attributes:
        name, seconds, settle_seconds: of the phase.
        rate: requests due each second; 0 for a closed loop.
        place: by which the columns name it.
        begins: seconds from the run's beginning.
    """

    name: str
    seconds: float
    settle_seconds: float
    rate: float
    place: int
    begins: float

    @property
    def judged_seconds(self) -> float:
        """How long it was judged."""
        return self.seconds - self.settle_seconds


@dataclass
class Record:
    """Requests as they end.

    Attributes:
        kinds: names, by their places.
        spans: phases, by their places.
    """

    kinds: Sequence[str]
    spans: list[Span] = field(default_factory=list)
    _columns: tuple["array[Any]", ...] = field(default_factory=lambda: tuple(array(code) for code in "dffHBBB"))

    def __len__(self) -> int:
        return len(self._columns[0])

    def begin(self, phase: Phase, begins: float) -> int:
        """Begin a phase so many seconds from the run's beginning; returns its place."""
        place = len(self.spans)
        self.spans.append(Span(phase.name, phase.seconds, phase.settle_seconds, phase.rate, place, begins))
        return place

    def cut(self, now: float) -> None:
        """End the phase that is under way, so many seconds from the run's beginning."""
        last = self.spans[-1]
        seconds = now - last.begins
        self.spans[-1] = replace(last, seconds=seconds, settle_seconds=min(last.settle_seconds, seconds))

    def add(self, due: float, latency: float, lag: float, code: int, kind: int, phase: int, judged: Verdict) -> None:
        """Add one request; the arguments are those of `Columns`."""
        for column, value in zip(self._columns, (due, latency, lag, code, kind, phase, int(judged)), strict=True):
            column.append(value)

    def columns(self, start: int = 0) -> Columns:
        """Return a copy of everything, or of what ended after the first `start`."""
        types = (np.float64, np.float32, np.float32, np.uint16, np.uint8, np.uint8, np.uint8)
        return Columns(*(np.array(one[start:], kind) for one, kind in zip(self._columns, types, strict=True)))
