"""What must hold of any row of logits if softmax is Boltzmann's distribution with E = −z: six checks with numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from logitd_kernels.backends import Backend, pick
from logitd_kernels.head import Floats
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.registry import check
from logitd_kernels.sampling.sample import sample
from logitd_kernels.score import Score, score
from logitd_kernels.softmax import softmax
from logitd_kernels.thermo.analyze import RowAnalysis, analyze
from logitd_kernels.thermo.sweep import Sweep

_TEMPERATURES = (0.1, 0.5, 1.0, 2.0, 10.0)
_RISING = tuple(float(f"{temperature:.6g}") for temperature in np.geomspace(0.01, 100.0, 41))
_COLD, _HOT = 1e-3, 1e9  # of the gap below the maximum, and of the distance between the largest and the smallest logit
_STEP = 1e-4  # of a logit, either way: rounding and curvature both cost about 1e-9
_SLOPES = 16  # tokens whose slope is measured
_IN_REACH = 1e5  # below the largest logit: further down a step is lost in rounding


class Claims(Protocol):
    """What is checked about one row."""

    def probabilities(self, temperature: float) -> Floats:
        """Return softmax(z/T), [V]."""

    def sweep(self, temperatures: Sequence[float]) -> Sweep:
        """Return the state functions."""

    def coldest_token(self) -> int:
        """Return the token that is drawn at T = 0."""

    def gradient(self, target: int) -> Floats:
        """Return the slope of −ln p_target at T = 1 by each logit, [V]."""


@dataclass(frozen=True)
class Computed:
    """What the kernels compute for a row [V] float64, finite or −inf."""

    row: torch.Tensor
    backend: Backend

    @property
    def _rows(self) -> DenseRows:
        return DenseRows(self.row[None])

    def probabilities(self, temperature: float) -> Floats:
        """Return softmax(z/T), [V]."""
        values = softmax(self._rows, [temperature], "softmax", self.backend).values
        assert values is not None
        return np.asarray(values[0].numpy())

    def sweep(self, temperatures: Sequence[float]) -> Sweep:
        """Return the state functions."""
        [analysis] = analyze(self._rows, temperatures, backend=self.backend)
        assert isinstance(analysis, RowAnalysis)
        return analysis.sweep

    def coldest_token(self) -> int:
        """Return the token that is drawn at T = 0."""
        [answer] = sample(self._rows, check({"temperature": 0}), backend=self.backend)
        return int(answer.tokens[0])  # type: ignore[union-attr]

    def gradient(self, target: int) -> Floats:
        """Return p − y at T = 1, [V]."""
        [answer] = score(self._rows, torch.tensor([target]), [check({})], backend=self.backend, gradient=True)
        assert isinstance(answer, Score)
        assert answer.gradient is not None
        return np.asarray(answer.gradient.numpy())


@dataclass(frozen=True, slots=True)
class Check:
    """One law: what it says, the number that was found, and the largest that passes."""

    name: str
    says: str
    found: float
    bound: float

    @property
    def passed(self) -> bool:
        """Whether the law holds; NaN does not."""
        return self.found <= self.bound


def verify(row: torch.Tensor, claims: Claims | None = None) -> list[Check]:
    """Check every law on a row.

    Args:
        row: [V], any float dtype.
        claims: what is said about it; None asks the kernels.
    Raises:
        BadRow: NaN, +inf or nothing finite.
    """
    checked = DenseRows(row[None]).row(0).double()
    claims = claims or Computed(checked, pick("auto"))
    return [law(checked.numpy(), claims) for law in LAWS]


def boltzmann(row: Floats, claims: Claims) -> Check:
    """softmax(z/T) is e^(−E/T)/Z with E = −z, computed from the energies alone."""
    found = [np.abs(claims.probabilities(t) - _boltzmann(-row, t)).max() for t in _TEMPERATURES]
    told = ", ".join(f"{t:g}" for t in _TEMPERATURES)
    return Check("boltzmann", f"|softmax(z/T) - e^(-E/T)/Z| at T = {told}", float(max(found)), 1e-12)


def entropy_rises(row: Floats, claims: Claims) -> Check:
    """S never falls as T rises: dS/dT = C/T ≥ 0."""
    falls = -np.diff(claims.sweep(_RISING).entropy)
    says = f"largest fall of S over {len(_RISING)} rising T from {_RISING[0]:g} to {_RISING[-1]:g}"
    return Check("entropy rises", says, _worst(np.maximum(falls, 0.0)), 1e-10)


def cold_limit(row: Floats, claims: Claims) -> Check:
    """As T falls to 0 all mass goes to the largest logit, shared among equals; T = 0 takes the lowest id of them."""
    largest = row.max()
    lower = row[row < largest]
    gap = largest - lower.max() if len(lower) and lower.max() > -np.inf else 1.0
    temperature = max(float(gap) * _COLD, np.finfo(np.float64).tiny)
    top = row == largest
    apart = np.abs(claims.probabilities(temperature) - top / top.sum()).max()
    wrong = claims.coldest_token() != int(np.argmax(row))
    says = f"|softmax(z/T) - argmax| at T = {temperature:.3g}; the token at T = 0 " + ("differs" if wrong else "agrees")
    return Check("T -> 0: argmax", says, np.inf if wrong else float(apart), 1e-12)


def hot_limit(row: Floats, claims: Claims) -> Check:
    """As T grows all finite logits become equally likely."""
    finite = row > -np.inf
    temperature = max(float(row.max() - row[finite].min()), 1.0) * _HOT
    apart = np.abs(claims.probabilities(temperature) * finite.sum() - finite).max()
    says = f"|n softmax(z/T) - 1| over n = {finite.sum()} tokens at T = {temperature:.3g}"
    return Check("T -> inf: uniform", says, float(apart), 1e-8)


def cross_entropy_slope(row: Floats, claims: Claims) -> Check:
    """The slope of the cross-entropy −ln p_y by each logit is p − y: against central finite differences."""
    order = np.argsort(-row, kind="stable")[: int((row >= row.max() - _IN_REACH).sum())]
    places = order[np.unique(np.linspace(0, len(order) - 1, _SLOPES).astype(int))]
    target = int(places[len(places) // 2])
    claimed = claims.gradient(target)[places]
    measured = np.array([_slope(row, target, int(place)) for place in places])
    says = f"|(p - y) - finite difference| at {len(places)} tokens from likely to unlikely, y = token {target}"
    return Check("gradient is p - y", says, _worst(np.abs(claimed - measured)), 1e-6)


def free_energy(row: Floats, claims: Claims) -> Check:
    """F = U − T·S, with S a sum of its own."""
    sweep = claims.sweep(_RISING)
    heat = sweep.temperature * sweep.entropy
    scale = np.maximum.reduce([np.abs(sweep.free_energy), np.abs(sweep.internal_energy), heat])
    apart = np.abs(sweep.free_energy - (sweep.internal_energy - heat)) / np.maximum(scale, np.finfo(np.float64).tiny)
    return Check("F = U - T S", f"|F - (U - T S)| / max(|F|, |U|, T S) at {len(_RISING)} T", _worst(apart), 1e-9)


LAWS: tuple[Callable[[Floats, Claims], Check], ...] = (
    boltzmann,
    entropy_rises,
    cold_limit,
    hot_limit,
    cross_entropy_slope,
    free_energy,
)


def _boltzmann(energies: Floats, temperature: float) -> Floats:
    with np.errstate(over="ignore"):
        weights = np.exp(-(energies - energies.min()) / temperature)
    return np.asarray(weights / weights.sum())


def _slope(row: Floats, target: int, place: int) -> float:
    """Return the central finite difference of −ln p_target by one logit."""
    either = []
    for step in (_STEP, -_STEP):
        moved = row - row.max()
        moved[place] += step
        either.append(np.log(np.exp(moved).sum()) - moved[target])
    return float(either[0] - either[1]) / (2 * _STEP)


def _worst(found: Floats) -> float:
    """Return the largest number; NaN where any is."""
    return float(np.max(found))
