"""From which length on a method is the faster one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.attention.figures import YARDSTICKS, Figure
from loadtest.attention.methods import PEER


@dataclass(frozen=True)
class Crossover:
    """Where a method overtakes exact attention.

    Attributes:
        method: who overtakes.
        against: `exact` or `exact_bf16`.
        causal: whether the calls were.
        length: the shortest measured length from which on it was the faster one at all of them; None where it was
            not at the longest.
        about: where the two curves cross, linear between the measured points on log-log axes; None where they do not.
    """

    method: str
    against: str
    causal: bool
    length: int | None
    about: float | None


def crossovers(figures: Sequence[Figure]) -> list[Crossover]:
    """Return the crossover of every method against `exact` and `exact_bf16`, as far as they ran; not the peer's."""
    found = []
    for method, causal in dict.fromkeys((figure.method, figure.causal) for figure in figures):
        mine = [figure for figure in figures if (figure.method, figure.causal) == (method, causal)]
        for against in YARDSTICKS:
            faster = {figure.length: figure.faster[against].median for figure in mine if against in figure.faster}
            if faster and method not in (against, "exact", PEER):
                found.append(Crossover(method, against, causal, *crossing(faster)))
    return found


def crossing(faster: dict[int, float]) -> tuple[int | None, float | None]:
    """Return from which length on a ratio stays above 1, and about where it becomes 1.

    Args:
        faster: the ratio by length.
    """
    lengths = sorted(faster)
    slow = max((place for place, length in enumerate(lengths) if not faster[length] > 1), default=-1)
    if slow + 1 == len(lengths):
        return None, None
    first = lengths[slow + 1]
    if slow < 0:
        return first, None
    last = lengths[slow]
    below, above = math.log(faster[last]), math.log(faster[first])
    return first, last * (first / last) ** (below / (below - above))
