"""How many of the likeliest tokens hold a wanted mass."""

import numpy as np
import torch

from logitd_kernels.head import Floats, Ids

_FEW = 1 << 10
_WIDER = 8


def nucleus_sizes(row: torch.Tensor, mass: float, temperatures: Floats, total: Floats) -> Ids:
    """Return the size of the smallest prefix of the total order that holds `mass` of softmax(row/T), for each T.

        size = least j with p_1 + … + p_j ≥ mass, p descending

    Sums run in float64 along the order; the token that crosses is in, and equal logits count one by one. A mass of 1
    takes every finite logit. This is what `top_p` would keep at T, with nothing else in force.

    Args:
        row: [V], with a finite logit and neither NaN nor +inf.
        mass: in (0, 1].
        temperatures: [K], each > 0.
        total: [K], Σ e^((x − M)/T) of the whole row at each.
    Returns:
        [K] int64, each in [1, finite logits].
    """
    ordered = torch.sort(row.double(), descending=True).values.numpy()
    ordered = ordered[ordered > -np.inf]
    if mass == 1:
        return np.full(len(temperatures), len(ordered), np.int64)
    with np.errstate(over="ignore"):
        gaps = ordered - ordered[0]
    pairs = zip(temperatures.tolist(), total.tolist(), strict=True)
    return np.array([_reaching(gaps, temperature, mass * whole) for temperature, whole in pairs], np.int64)


def _reaching(gaps: Floats, temperature: float, wanted: float) -> int:
    """Widen a prefix until it reaches the wanted mass: most rows need few of their exponentials."""
    count = _FEW
    while True:
        with np.errstate(over="ignore"):
            masses = np.cumsum(np.exp(gaps[:count] / temperature))
        if masses[-1] >= wanted or count >= len(gaps):
            return min(int(np.searchsorted(masses, wanted)) + 1, len(gaps))
        count *= _WIDER
