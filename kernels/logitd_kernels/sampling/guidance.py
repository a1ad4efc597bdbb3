"""Classifier-free guidance: away from what a second row of logits says."""

import numpy as np
import torch

from logitd_kernels.errors import BadRow
from logitd_kernels.head import Floats
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Mix, Values


def _mix(logits: torch.Tensor, values: Values) -> torch.Tensor:
    given, free = _log_softmax(logits.double().numpy()), _guide(values["guidance_logits"])
    scale = values["guidance_scale"]
    with np.errstate(invalid="ignore", over="ignore"):
        mixed = free + scale * (given - free)
    # Where the guide rules a token out it says nothing of how much more likely the token is; a masked token stays so.
    mixed = np.where(np.isneginf(free), given, mixed)
    mixed = np.where(np.isneginf(given), -np.inf, mixed)
    if not (mixed < np.inf).all():
        place = int(np.argmin(mixed < np.inf))
        raise BadRow.non_finite(place, float(mixed[place]), "posinf")
    return torch.from_numpy(mixed)


def _guide(logits: Floats) -> Floats:
    if not (logits < np.inf).all():
        place = int(np.argmin(logits < np.inf))
        kind = "nan" if np.isnan(logits[place]) else "posinf"
        what = "NaN" if kind == "nan" else "+inf"
        raise BadRow("non_finite", kind, f"guidance logit {place} is {what}; only finite values and -inf are legal")
    if not (logits > -np.inf).any():
        raise BadRow.all_masked("every guidance logit is -inf")
    return _log_softmax(logits)


def _log_softmax(logits: Floats) -> Floats:
    with np.errstate(over="ignore"):
        deltas: Floats = logits - logits.max()
    logprobs: Floats = deltas - np.log(np.sum(np.exp(deltas)))
    return logprobs


GUIDANCE = Mix(
    name="guidance",
    parameter=Number(
        "guidance_scale", 1.0, "Classifier-free guidance scale s, with `guidance_logits`; 1 is off.", ge=0
    ),
    needs="guidance_logits",
    formula="x ← u + s·(c − u), c and u the log-softmax of logits and guidance_logits",
    boundary="Without `guidance_logits` nothing happens; −∞ in logits stays; where only the guide has −∞, x is c.",
    source="Sanchez et al. 2023, arXiv:2306.17806, eq. 4; Hugging Face UnbatchedClassifierFreeGuidanceLogitsProcessor",
    mix=_mix,
    differs={"hf": "NaN where the guide has −∞."},
)
