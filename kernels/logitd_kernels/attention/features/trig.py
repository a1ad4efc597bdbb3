"""Trigonometric features: random Fourier features of the Gaussian kernel, times e^(‖x‖²/2)."""

import math

import torch

from logitd_kernels.attention.features.doubled import Doubled
from logitd_kernels.attention.features.feature import Features, Method, Setting
from logitd_kernels.attention.features.positive import gaussian, half_square


class Trig(Doubled):
    """φ(x) = e^(‖x‖²/2)·[sin Wx, cos Wx] / √M, W [M, d]."""

    @property
    def width(self) -> int:
        """The features of a vector share e^(‖x‖²/2)."""
        return 1

    def queries(self, x: torch.Tensor, positions: torch.Tensor) -> Features:
        """Lift q'."""
        angles = x @ self.rows.mT
        factor = torch.cat([angles.sin(), angles.cos()], -1).div_(math.sqrt(len(self.rows)))
        return Features(half_square(x), factor)

    keys = queries


def _fit(setting: Setting) -> Trig:
    return Trig(gaussian(setting, each=2))


TRIG = Method(
    name="trig",
    formula="e^(‖x‖²/2)·[sin Wx, cos Wx] / √M",
    features="2M = feature_dim",
    approximates=True,
    adapts=False,
    note="Exact for q' = k'; its weights may be negative, and with real norms half of the normalisers are.",
    source="Rahimi and Recht 2007, “Random Features for Large-Scale Kernel Machines”; Choromanski et al. 2021, §2.3",
    fit=_fit,
)
