"""What the client returns of tokens that were scored."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd.client.results import RowError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoreResult:
    """The answer to one request to score. NaN and −1 stand where a row was left out or failed.

    Attributes:
        target: [B] int64, the token ids as they were sent.
        logprob_raw: [B] natural log-probability of the target in the untouched row at T = 1; −inf for a masked token.
        logprob: [B] the same of what the parameters draw from; −inf where they leave the token out.
        rank: [B] int64, its place in the untouched row (logit descending, token id ascending), the first 1.
        entropy: [B] nats, of the untouched row at T = 1.
        gradient: [B, V] p − y, of −logprob_raw by the logits, 0 in rows that were left out; float64 for float64 logits,
            else float32; None unless asked.
        cross_entropy: mean −logprob in nats over the rows that count; infinite where one of them is −inf.
        perplexity: e to its power.
        cross_entropy_raw, perplexity_raw: the same of `logprob_raw`.
        tokens: how many rows count: those that were neither left out nor failed.
        errors: why each row failed, None for one that did not.
        backend: what computed it.
        effective: the parameters as the service understood them, one object or one for each row.
        seconds: where the service spent its time, by stage.
    """

    target: NDArray[np.int64]
    logprob_raw: Floats
    logprob: Floats
    rank: NDArray[np.int64]
    entropy: Floats
    gradient: NDArray[np.floating[Any]] | None
    cross_entropy: float
    perplexity: float
    cross_entropy_raw: float
    perplexity_raw: float
    tokens: int
    errors: list[RowError | None]
    backend: str
    effective: dict[str, Any] | list[dict[str, Any]]
    seconds: dict[str, float]
