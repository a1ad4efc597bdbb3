"""Mirostat: cut so that the surprise of what is drawn comes out at a target, from step to step."""

import math

import numpy as np

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number, Optional
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow

_LOOKED_AT = 100  # likeliest tokens from which version 1 estimates how the probabilities fall


def _mu(values: Values) -> float:
    mu = values["mirostat_mu"]
    return float(2 * values["mirostat_tau"] if mu is None else mu)


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    if values["mirostat"] == 1:
        log_count = _log_k(row, kept, _mu(values))
        return row.first(max(1, int(math.exp(log_count)))) if log_count < math.log(kept.count) else kept
    return row.above(row.max + row.temperature * (math.log(kept.mass) - _mu(values) * math.log(2)))


def _log_k(row: OrderedRow, kept: Prefix, mu: float) -> float:
    """Return ln k, k = ((ε̂·2^μ)/(1 − N^−ε̂))^(1/ŝ): Basu et al., eq. 8 to 10."""
    most = min(_LOOKED_AT, kept.count)
    deltas = np.maximum(row.head(most).deltas[:most], -1e300)  # two that are beyond float64 are as likely
    size = len(deltas)  # the best guess of a head form may know fewer
    if size < 2:
        return math.inf
    ratios = np.log((np.arange(size - 1) + 2) / (np.arange(size - 1) + 1))
    falls = np.minimum(deltas[:-1] - deltas[1:], 1e300 / size)  # ln p_i/p_(i+1)
    slope = float(np.sum(ratios * falls) / np.sum(ratios * ratios))
    log_vocab, epsilon = math.log(row.finite_count), slope - 1
    share = 1 / log_vocab if epsilon == 0 else -epsilon / math.expm1(-epsilon * log_vocab) if epsilon > -1e2 else 0.0
    log_base = math.log(share) + mu * math.log(2)
    if slope == 0:
        return math.copysign(math.inf, log_base) if log_base else 0.0
    return log_base / slope


def _update(values: Values, probability: float) -> dict[str, float]:
    surprise = -math.log2(probability) if probability > 0 else 1074.0
    return {"mirostat_mu": _mu(values) - values["mirostat_eta"] * (surprise - values["mirostat_tau"])}


MIROSTAT = Cut(
    name="mirostat",
    parameter=Number("mirostat", 0, "1 or 2 keeps the surprise near a target; 0 is off.", ge=0, le=2, integer=True),
    options=(
        Number("mirostat_tau", 5.0, "The surprise aimed at, bits.", gt=0, le=100),
        Number("mirostat_eta", 0.1, "How fast mirostat_mu follows.", ge=0, le=10),
        Optional(Number("mirostat_mu", 0.0, "The state: what the step before returned; null starts at 2·tau.")),
    ),
    formula="2: keep i with −log2 p_i ≤ μ; 1: keep the first ((ε̂·2^μ)/(1 − N^−ε̂))^(1/ŝ), ŝ fitted to the first 100; "
    "then μ ← μ − η·(−log2 p(token) − τ)",
    boundary="The likeliest token is always kept; p is renormalised for the update; `state` returns the next μ.",
    source="Basu et al. 2021, arXiv:2007.14966, algorithms 1 and 2; llama.cpp",
    cut=_cut,
    update=_update,
    differs={
        "llama.cpp": "Replaces every other step but the temperature; N is the whole vocabulary, masked tokens too."
    },
)
