"""FAVOR+: positive random features of the softmax kernel."""

import math

from logitd_kernels.attention.features.feature import Method, Setting
from logitd_kernels.attention.features.positive import Positive, gaussian


def _fit(setting: Setting) -> Positive:
    rows = gaussian(setting)
    return Positive(rows, -math.log(len(rows)) / 2)


FAVOR_PLUS = Method(
    name="favor_plus",
    formula="e^(w·x − ‖x‖²/2) / √M",
    features="M = feature_dim",
    approximates=True,
    adapts=False,
    note="Variance e^(‖q'+k'‖²)·K²/M, K = e^(q'·k'): small for small weights, useless where E‖q'+k'‖² passes 2.",
    source="Choromanski et al. 2021, “Rethinking Attention with Performers”, Lemma 1, arXiv:2009.14794",
    fit=_fit,
)
