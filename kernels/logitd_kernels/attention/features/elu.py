"""elu(x) + 1: the map of the first linear transformer."""

import torch

from logitd_kernels.attention.features.feature import Method, Setting
from logitd_kernels.attention.features.plain import Plain


def _lift(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    # Not elu(x) + 1: for x < 0 it is e^x, whose digits 1 would swallow.
    return torch.where(x > 0, x + 1, x.clamp_max(0).exp())


def _fit(setting: Setting) -> Plain:
    return Plain(setting.dim, setting.dim, _lift)


ELU = Method(
    name="elu",
    formula="elu(x) + 1",
    features="d",
    approximates=False,
    adapts=False,
    note="Another operator, for models trained with it; put in place of softmax it is near the mean of V.",
    source="Katharopoulos et al. 2020, “Transformers are RNNs”, eq. 7, arXiv:2006.16236",
    fit=_fit,
)
