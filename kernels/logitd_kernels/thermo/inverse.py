"""The temperature at which a row has a wanted entropy."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from logitd_kernels.thermo.survey import Survey

TOLERANCE = 1e-10  # nats
_LONGEST_STEP = 3.0  # of ln T
_LOWEST, _HIGHEST = math.log(sys.float_info.min), math.log(sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The temperature that gives a wanted entropy, or the reason why none does."""

    temperature: float | None
    reason: str | None = None


def temperature_for_entropy(evaluate: Callable[[float], tuple[float, float]], row: Survey, entropy: float) -> Wanted:
    """Find T with S(T) = entropy within 1e-10 nats.

    S rises with T: dS/d ln T = C ≥ 0. Newton's method in ln T, kept inside the bracket that its own points form, with
    bisection where it would leave it. As T falls S nears ln(logits equal to the maximum), as it grows ln(finite
    logits); what is not between the two has no temperature, the two themselves neither.

    Args:
        evaluate: returns S and C at a temperature.
        row: whose they are.
        entropy: in nats.
    """
    least, most = math.log(row.at_largest), math.log(row.finite)
    if row.is_level:
        what = "one logit is finite" if row.finite == 1 else f"all {row.finite} finite logits are equal"
        return Wanted(None, f"{what}: the entropy is {most:.6g} at every temperature")
    if not least < entropy < most:
        bounds = f"ln {row.at_largest} = {least:.6g} and ln {row.finite} = {most:.6g}"
        return Wanted(None, f"the entropy lies between {bounds} at every temperature, and {entropy:.6g} does not")
    found = _solve(evaluate, row, entropy)
    return Wanted(found, None if found else "the temperature would be beyond float64")


def _solve(evaluate: Callable[[float], tuple[float, float]], row: Survey, entropy: float) -> float | None:
    low, high = -math.inf, math.inf  # of ln T
    place = math.log(max(row.largest / 2 - row.smallest / 2, sys.float_info.min))
    while True:
        reached, slope = evaluate(math.exp(place))
        missing = entropy - reached
        if abs(missing) <= TOLERANCE:
            return math.exp(place)
        low, high = (place, high) if missing > 0 else (low, place)
        step = missing / slope if slope > 0 else math.copysign(math.inf, missing)
        following = place + min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
        if not low < following < high:
            following = (low + high) / 2
        if not _LOWEST <= following <= _HIGHEST or following in (low, high):
            return None
        place = following
