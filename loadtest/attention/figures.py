"""Times: every method at every length in one run, by turns."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.attention.answers import Errors
from loadtest.attention.curve import ASYMPTOTIC, TIME, Curve
from loadtest.attention.methods import PEER, Method, able
from loadtest.attention.work import Work
from loadtest.kernels.timing import Budget, Contender, Spread, Times, alternate, ratio, spread

YARDSTICKS = ("exact", "exact_bf16")

Measured = dict[tuple[str, int], Times]  # by method and length: seconds a call by round


@dataclass(frozen=True)
class Figure:
    """A method at a length.

    Attributes:
        method, causal, length: what was measured.
        seconds: of CPU time, a call.
        faster: how many times as fast as `exact` and `exact_bf16` on the same call, round by round, where these ran.
        error: relative, on this call.
        rounds: how many turns it had.
    """

    method: str
    causal: bool
    length: int
    seconds: Spread
    faster: dict[str, Spread]
    error: float
    rounds: int


def measure(works: Sequence[Work], budget: Budget, errors: Errors, full: bool) -> tuple[list[Figure], list[Curve]]:
    """Time calls of one mask, all in the same rounds, so that ratios and slopes hold for one moment.

    Args:
        works: the calls, shortest first.
        budget: of all of them together.
        errors: of each method on each call.
        full: as of `methods.able`.
    Returns:
        The figures, and the time curve of each linear method from 4096 keys on.
    """
    pairs = {(one.name, work.length): (one, work) for work in works for one in able(work, full)}
    times = alternate([_contender(*pair) for pair in pairs.values()], budget)
    measured = {key: times[_name(*pair)] for key, pair in pairs.items()}
    figures = [_figure(measured, method, work, errors) for method, work in pairs.values()]
    return figures, _curves(measured, works[0].causal, {key for key, (method, _) in pairs.items() if method.linear})


def _contender(method: Method, work: Work) -> Contender:
    call = work.call
    return Contender(_name(method, work), lambda index: method.attend(call), ours=method.name != PEER)


def _name(method: Method, work: Work) -> str:
    return f"{method.name} {work.length}"


def _figure(measured: Measured, method: Method, work: Work, errors: Errors) -> Figure:
    mine = measured[method.name, work.length]
    beside = {name: measured[name, work.length] for name in YARDSTICKS if (name, work.length) in measured}
    return Figure(
        method=method.name,
        causal=work.causal,
        length=work.length,
        seconds=spread(mine),
        faster={name: ratio(times, mine) for name, times in beside.items()},
        error=errors[method.name, work],
        rounds=len(mine),
    )


def _curves(measured: Measured, causal: bool, linear: set[tuple[str, int]]) -> list[Curve]:
    series: dict[str, dict[int, Times]] = {}
    for (name, length), times in measured.items():
        if (name, length) in linear and length >= ASYMPTOTIC:
            series.setdefault(name, {})[length] = times
    return [Curve.of(TIME, name, causal, points) for name, points in series.items() if len(points) > 1]
