"""Axes with round numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Maps values to places."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, log: bool = False) -> "Axis":
        """Return an axis from the least to the largest value."""
        low, high = (min(values), max(values)) if values else (1.0, 2.0)
        if high <= low:
            low, high = (low / 2, high * 2) if log else (low, low + 1.0)
        return cls(low, high, start, end, log)

    @classmethod
    def rounded(cls, values: Sequence[float], start: float, end: float, log: bool) -> "Axis":
        """Return an axis between round values, from 0 where it is linear."""
        exact = cls.over(values if log else [0.0, *values], start, end, log)
        if log:
            return cls(_round(exact.low, max), _round(exact.high, min), start, end, log)
        step = _step(exact.low, exact.high)
        return cls(math.floor(exact.low / step) * step, math.ceil(exact.high / step) * step, start, end, log)

    def place(self, value: float) -> float:
        """Return where a value stands."""
        scale = math.log if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[float]:
        """Return some round values: 1, 2 or 5 times a power of ten."""
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)


def _step(low: float, high: float) -> float:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough * (1 - 1e-9))


def _linear_ticks(low: float, high: float) -> list[float]:
    step = _step(low, high)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _round(value: float, choose: Callable[[Sequence[float]], float]) -> float:
    """Return the nearest 1, 2 or 5 times a power of ten: `max` of those not above a value, `min` of those not below."""
    power = math.floor(math.log10(value))
    near = [digit * 10.0**exponent for exponent in range(power - 1, power + 2) for digit in (1, 2, 5)]
    return choose([one for one in near if (one <= value if choose is max else one >= value)])


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [
        digit * 10.0**power
        for power in powers
        for digit in digits
        if low * (1 - 1e-9) <= digit * 10.0**power <= high * (1 + 1e-9)
    ]


def number(value: float) -> str:
    """Return a number as it stands at an axis."""
    if value == 0 or 0.001 <= abs(value) < 1e6:
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:.0e}"
