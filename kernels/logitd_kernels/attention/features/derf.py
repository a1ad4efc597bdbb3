"""DERF: dense exponential random features, FAVOR++ with an A of its own along each direction of q' + k'."""

import torch

from logitd_kernels.attention.features.feature import Method, Setting
from logitd_kernels.attention.features.positive import Positive, damped


def _fit(setting: Setting) -> Positive:
    values, vectors = torch.linalg.eigh(setting.known().of_sum())
    return damped(setting, values.clamp_min(0), turn=vectors)


DERF = Method(
    name="derf",
    formula="D·e^(wᵀAw + wᵀB·Uᵀx − ‖x‖²/2) / √M, UΛUᵀ = E (q'+k')(q'+k')ᵀ, A and B from Λ",
    features="M = feature_dim",
    approximates=True,
    adapts=True,
    note="The best of the random maps on real heads, and still far from the moment state.",
    source="Likhosherstov et al. 2023, “FAVOR#” (ADERF), arXiv:2302.00787",
    fit=_fit,
)
