"""What a feature map is: φ with φ(q')·φ(k') ≈ e^(q'·k'), kept as exponents so that no norm overflows.

q' = q·√|scale| and k' = k·√|scale|, a negative scale's sign on q', so that q'·k' is the logit. Nothing is added to φ:
an ε there would be attention to every key alike, and would silently turn rows of large norm into the mean of V.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch

from logitd_kernels.attention.call import Options
from logitd_kernels.attention.features.moments import Moments
from logitd_kernels.attention.parts import SCORE_LIMIT
from logitd_kernels.errors import ParameterError

LIMIT = 1e12  # entries of q' and k' beyond it are cut: float32 has no fraction left in such a logit


def primed(x: torch.Tensor, scale: float, dtype: torch.dtype) -> torch.Tensor:
    """Return x·√scale, −x·√−scale for a negative one: q' of q; k' of k at |scale|."""
    root = math.copysign(min(math.sqrt(abs(scale)), SCORE_LIMIT), scale)  # 0 · ∞ is NaN
    return (x.detach().to(dtype) * root).clamp_(-LIMIT, LIMIT)


@dataclass(frozen=True)
class Features:
    """φ of T vectors of H heads: factor · e^exponent.

    Attributes:
        exponent: [H, T, m], or [H, T, 1] where the features of a vector share it; finite.
        factor: [H, T, m], of either sign; None is 1.
    """

    exponent: torch.Tensor
    factor: torch.Tensor | None = None

    def of_keys(self, pivot: torch.Tensor) -> torch.Tensor:
        """Return φ·e^(−pivot), [H, T, m]; the pivot is [H, 1, m or 1] and no exponent passes it."""
        weights = (self.exponent - pivot).exp_()
        return weights if self.factor is None else self.factor * weights

    def of_queries(self, pivot: torch.Tensor) -> torch.Tensor:
        """Return φ·e^pivot, what meets keys kept at e^(−pivot), each row on a scale of its own: it cancels.

        The largest exponential of a row is 1, and so is its largest factor.
        """
        exponent = self.exponent + pivot
        weights = exponent.sub_(exponent.amax(-1, keepdim=True)).exp_()
        if self.factor is None:
            return weights
        largest = self.factor.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        return self.factor / largest * weights


class FeatureMap(Protocol):
    """A map fitted to a call: what `Method.fit` gives.

    Attributes:
        size: m, features in all.
        width: of the exponent, m or 1.
        work: multiply-adds that lifting one vector takes.
    """

    @property
    def size(self) -> int:
        """m."""

    @property
    def width(self) -> int:
        """m or 1."""

    @property
    def work(self) -> int:
        """Multiply-adds."""

    def queries(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift q', [H, T, d]; positions is [T] int64."""

    def keys(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift k', [H, T, d]; positions is [T] int64."""


@dataclass(frozen=True)
class Setting:
    """What a map is fitted to.

    Attributes:
        dim: d.
        scale: of q·k.
        options: `feature_dim`, `seed` and `orthogonal` concern maps.
        moments: of q' and k', for maps that adapt to them; they set the map, the weights stay each key's own.
        horizon: a length that no distance between query and key reaches, for maps that weigh by distance.
        dtype: of all arithmetic, float32 or float64.

    Raises:
        ParameterError: a dim or horizon that is not an integer ≥ 1, a scale that is not finite.
    """

    dim: int
    scale: float
    options: Options = field(default_factory=Options)
    moments: Moments | None = None
    horizon: int = 1
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        for name, value in (("dim", self.dim), ("horizon", self.horizon)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ParameterError(name, f"must be an integer of at least 1, got {value!r}")
        if not math.isfinite(self.scale):
            raise ParameterError("scale", f"must be finite, got {self.scale}")

    def projections(self, each: int = 1) -> int:
        """Return how many random projections give `feature_dim` features, `each` of them a projection.

        Raises:
            ParameterError: `feature_dim` is not an integer of at least 2 that `each` divides.
        """
        wanted = 4 * self.dim if self.options.feature_dim is None else self.options.feature_dim
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 2:
            raise ParameterError("feature_dim", f"must be an integer of at least 2, got {wanted!r}")
        if wanted % each:
            raise ParameterError("feature_dim", f"must be even, a projection gives {each} features, got {wanted}")
        return wanted // each

    def known(self) -> Moments:
        """Return the moments.

        Raises:
            ParameterError: there are none.
        """
        if self.moments is None:
            raise ParameterError("moments", "this map adapts to the moments of queries and keys, and none were given")
        return self.moments


@dataclass(frozen=True, kw_only=True)
class Method:
    """A kind of feature map.

    Attributes:
        name: the request's `method`, test id and docs heading.
        formula: φ of a vector x of d entries; W holds M Gaussian rows w.
        features: how many there are.
        approximates: whether φ(q')·φ(k') tends to e^(q'·k') as features are added; another operator where not.
        adapts: whether `Setting.moments` are needed.
        note: what to know before using it.
        source: the paper whose definition this is.
        fit: makes the map.
    """

    name: str
    formula: str
    features: str
    approximates: bool
    adapts: bool
    note: str
    source: str
    fit: Callable[[Setting], FeatureMap]
