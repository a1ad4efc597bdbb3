"""cosFormer: relu features, weighed by the distance of query and key."""

import math

import torch

from logitd_kernels.attention.features.feature import Method, Setting
from logitd_kernels.attention.features.plain import Lift, Plain


def _lift_of(horizon: int) -> Lift:
    def lift(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        angles = (positions.double() * (math.pi / 2 / horizon)).to(x.dtype)[:, None]
        positive = x.relu()
        return torch.cat([positive * angles.cos(), positive * angles.sin()], -1)

    return lift


def _fit(setting: Setting) -> Plain:
    return Plain(2 * setting.dim, 2 * setting.dim, _lift_of(setting.horizon))


COSFORMER = Method(
    name="cosformer",
    formula="[relu(x)·cos(πi/2L), relu(x)·sin(πi/2L)] at position i of L",
    features="2d",
    approximates=False,
    adapts=False,
    note="Another operator, for models trained with it: relu(q)·relu(k)·cos(π(i−j)/2L). L must be known beforehand; a "
    "query without a positive entry has no weights.",
    source="Qin et al. 2022, “cosFormer: Rethinking Softmax in Attention”, arXiv:2202.08791",
    fit=_fit,
)
