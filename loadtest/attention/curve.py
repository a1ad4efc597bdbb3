"""How a quantity grows with the length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.kernels.timing import Spread, Times, slope, spread

TIME, MEMORY, STEP, STATE = "time", "memory", "decode step", "decode state"
ASYMPTOTIC = 4096  # keys from which a slope is one


@dataclass(frozen=True)
class Curve:
    """A quantity over the length, on one thread.

    Attributes:
        what: `time` of a call, `memory` that it holds beyond its inputs, time of a `decode step`, or `decode state`.
        method: whose.
        causal: whether the calls were; a decode step is.
        sizes: L, or the tokens a stream had before the step.
        points: seconds or bytes.
        slope: of log(quantity) over log(size), round by round: 1 is linear, 0 is constant.
    """

    what: str
    method: str
    causal: bool
    sizes: tuple[int, ...]
    points: tuple[Spread, ...]
    slope: Spread

    @classmethod
    def of(cls, what: str, method: str, causal: bool, series: Mapping[int, Times]) -> "Curve":
        """Make a curve of values by round, for each of at least two sizes; round 0 is in all of them."""
        rounds = set.intersection(*(set(times) for times in series.values()))
        slopes = [slope(list(series), [times[index] for times in series.values()]) for index in sorted(rounds)]
        return cls(what, method, causal, tuple(series), tuple(map(spread, series.values())), Spread.of(slopes))


def found(curves: Sequence[Curve], what: str, method: str, causal: bool) -> Curve | None:
    """Return one of the curves, None where it was not measured."""
    return next((one for one in curves if (one.what, one.method, one.causal) == (what, method, causal)), None)
