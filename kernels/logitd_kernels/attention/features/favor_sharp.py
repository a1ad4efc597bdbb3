"""FAVOR#: queries and keys brought to equal size in each dimension, then the features of FAVOR++."""

import torch

from logitd_kernels.attention.features.feature import Method, Setting
from logitd_kernels.attention.features.moments import Moments
from logitd_kernels.attention.features.positive import Positive, damped


def balance_of(moments: Moments) -> torch.Tensor:
    """Return Ψ, [H, d] float64, with which E (Ψq')² = E (k'/Ψ)² in each dimension; 1 where either is 0."""
    q, k = moments.squares()
    return torch.where((q > 0) & (k > 0), (k / q).pow(0.25), 1.0)


def _fit(setting: Setting) -> Positive:
    moments = setting.known()
    balance = balance_of(moments)
    queries, keys = moments.squares()
    cross = moments.q_mean.double() * moments.k_mean.double()  # Ψ and 1/Ψ cancel
    spread = queries * balance.square() + keys / balance.square() + 2 * cross
    return damped(setting, spread.mean(-1, keepdim=True).expand(-1, setting.dim), balance=balance)


FAVOR_SHARP = Method(
    name="favor_sharp",
    formula="φ of FAVOR++ of Ψq' and k'/Ψ, Ψ_l = (E k'_l² / E q'_l²)^¼",
    features="M = feature_dim",
    approximates=True,
    adapts=True,
    note="The balance changes no logit; it makes E‖q'+k'‖² least.",
    source="Likhosherstov et al. 2023, “FAVOR#” (SADERF), arXiv:2302.00787",
    fit=_fit,
)
