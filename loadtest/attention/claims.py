"""The ratios that the design sets as targets, out of the figures and curves of one run."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.attention.curve import MEMORY, TIME, Curve, found
from loadtest.attention.figures import Figure
from loadtest.kernels.claims import Verdict, verdict

_MASKS = {False: "not causal", True: "causal"}


@dataclass(frozen=True)
class Speed:
    """How many times as fast as fp32 exact attention a method is, at the worst of some lengths.

    Attributes:
        method: whose.
        first, last: the lengths.
        least: the target of calls that are not causal. Causality halves the work of exact attention alone: there is
            no target for it.
    """

    method: str
    first: int
    last: int
    least: float

    def judge(self, figures: Sequence[Figure], causal: bool) -> Verdict:
        """Compare with the target; the ratio is None where nothing was measured."""
        here = [one for one in figures if (one.method, one.causal) == (self.method, causal)]
        here = [one for one in here if self.first <= one.length <= self.last and "exact" in one.faster]
        ratios = sorted((one.faster["exact"] for one in here), key=lambda spread: spread.median)
        lengths = f"L = {self.first}" + (f" … {self.last}, the least" if self.last > self.first else "")
        text = f"fp32 exact over {self.method}, {_MASKS[causal]}, {lengths}"
        return verdict(text, self.method, ratios[0] if ratios else None, None, None if causal else self.least)


@dataclass(frozen=True)
class Slope:
    """How a quantity of a method grows with the length: the slope on log-log axes.

    Attributes:
        what: time or memory.
        method: whose.
        most: the target.
    """

    what: str
    method: str
    most: float

    def judge(self, curves: Sequence[Curve], causal: bool) -> Verdict:
        """Compare with the target; the ratio is None where nothing was measured."""
        curve = found(curves, self.what, self.method, causal)
        sizes = f", L = {curve.sizes[0]} … {curve.sizes[-1]}" if curve else ""
        text = f"slope of {self.what} over L, {self.method}, {_MASKS[causal]}{sizes}"
        return verdict(text, self.method, curve.slope if curve else None, self.most)


CLAIMS: tuple[Speed | Slope, ...] = (
    Speed("moment", 1024, 8192, least=1),
    Speed("hybrid", 4096, 4096, least=2),
    Speed("hybrid", 8192, 8192, least=4),
    Slope(TIME, "hybrid", most=1.15),
    Slope(MEMORY, "hybrid", most=1.1),
    Slope(MEMORY, "moment", most=1.1),
)


def judge(figures: Sequence[Figure], curves: Sequence[Curve]) -> list[Verdict]:
    """Judge every claim, first not causal, then causal."""
    return [
        claim.judge(figures, causal) if isinstance(claim, Speed) else claim.judge(curves, causal)
        for causal in (False, True)
        for claim in CLAIMS
    ]
