"""Hyperbolic features: each projection with both signs, whose errors partly cancel."""

import math

import torch

from logitd_kernels.attention.features.doubled import Doubled
from logitd_kernels.attention.features.feature import Features, Method, Setting
from logitd_kernels.attention.features.positive import gaussian, half_square


class Hyperbolic(Doubled):
    """φ(x) = [e^(Wx), e^(−Wx)]·e^(−‖x‖²/2) / √(2M), W [M, d]."""

    @property
    def width(self) -> int:
        """Every feature has an exponent of its own."""
        return self.size

    def queries(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift q'."""
        projected = x @ self.rows.mT
        shared = half_square(x).add_(math.log(self.size) / 2)
        return Features(torch.cat([projected, -projected], -1).sub_(shared))

    keys = queries


def _fit(setting: Setting) -> Hyperbolic:
    return Hyperbolic(gaussian(setting, each=2))


HYPERBOLIC = Method(
    name="hyperbolic",
    formula="[e^(Wx), e^(−Wx)]·e^(−‖x‖²/2) / √(2M)",
    features="2M = feature_dim",
    approximates=True,
    adapts=False,
    note="Variance ½(1 − e^(−‖q'+k'‖²)) of FAVOR+'s at equal M: ahead of it for small norms alone.",
    source="Choromanski et al. 2021, “Rethinking Attention with Performers”, Lemma 1 (SM^hyp+), arXiv:2009.14794",
    fit=_fit,
)
