"""FAVOR++: positive features that are bounded, as far as the norms of this head ask for."""

from logitd_kernels.attention.features.feature import Method, Setting
from logitd_kernels.attention.features.positive import Positive, damped


def _fit(setting: Setting) -> Positive:
    second = setting.known().of_sum()
    mean = second.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)  # λ = E‖q'+k'‖² / d
    return damped(setting, mean.expand(-1, setting.dim))


FAVOR_PLUS_PLUS = Method(
    name="favor_plus_plus",
    formula="D·e^(A‖w‖² + B·w·x − ‖x‖²/2) / √M, A, B, D from λ = E‖q'+k'‖²/d",
    features="M = feature_dim",
    approximates=True,
    adapts=True,
    note="One A for all directions, set for each head; equal to FAVOR+ at λ = 0.",
    source="Likhosherstov et al. 2022, “Chefs' Random Tables” (OPRF), arXiv:2205.15317",
    fit=_fit,
)
