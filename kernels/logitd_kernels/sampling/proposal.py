"""The proposal distribution q of speculative decoding: what each draft token was drawn from."""

import math
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import torch

from logitd_kernels.backends import Backend
from logitd_kernels.errors import BadRow
from logitd_kernels.head import Floats
from logitd_kernels.sampling.distribution import distribution
from logitd_kernels.sampling.order import Order
from logitd_kernels.sampling.result import RowFault
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.transform import Values

# How far Σ draft_probs may lie from 1: what rounding a long row to that dtype may do.
TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 1e-2}


def proposals(
    speculation: Speculation, row: int, ids: Sequence[int], values: Sequence[Values], backend: Backend, order: Order
) -> list[Floats]:
    """Return q [V] of each draft token of a row, up to the first that nothing could have been drawn from.

    q is `draft_probs` divided by their sum; or what `sample` would draw from `draft_logits`; or, with neither, a point
    on the draft token. Nothing can be drawn from probabilities with NaN, or from logits that `sample` refuses.

    Args:
        speculation: the rows.
        row: which of them.
        ids: its draft tokens.
        values: parameters of `draft_logits`, one mapping for each draft token.
        backend: where these are ranked.
        order: in which transforms act on them.
    Raises:
        BadRow: probabilities that are negative or infinite, or do not sum to 1 within `TOLERANCE` (`bad_draft`).
        ParameterError: a token id outside the vocabulary.
    """
    if speculation.draft_logits is not None and ids:
        rows = speculation.positions(speculation.draft_logits, row, ids, len(ids))
        return _drawable(distribution(rows, values, backend, order))
    if speculation.draft_probs is not None and ids:
        return _of_probabilities(speculation.draft_probs[row, : len(ids)])
    return [_point(token, speculation.vocab_size) for token in ids]


def _drawable(found: Sequence[Floats | RowFault]) -> list[Floats]:
    return [q for q in takewhile(lambda one: not isinstance(one, RowFault), found) if not isinstance(q, RowFault)]


def _of_probabilities(probabilities: torch.Tensor) -> list[Floats]:
    found: list[Floats] = []
    each: Floats = probabilities.detach().double().numpy()
    for place, q in enumerate(each):
        least = float(q.min())
        if math.isnan(least):
            break
        if least < 0 or q.max() == np.inf:
            token = int(np.flatnonzero((q < 0) | (q == np.inf))[0])
            raise _bad(place, f"the probability of token {token} is {q[token]:g}; expected finite numbers ≥ 0")
        found.append(_normalised(q, place, TOLERANCE[probabilities.dtype]))
    return found


def _normalised(q: Floats, place: int, tolerance: float) -> Floats:
    total = float(q.sum())
    if abs(total - 1.0) > tolerance:
        raise _bad(place, f"the probabilities sum to {total:.6g}; expected 1 within {tolerance:g}")
    return q / total


def _bad(place: int, detail: str) -> BadRow:
    return BadRow("bad_draft", "bad_draft", f"draft position {place}: {detail}")


def _point(token: int, vocab_size: int) -> Floats:
    q = np.zeros(vocab_size)
    q[token] = 1.0
    return q
