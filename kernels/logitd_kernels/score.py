"""`score`: what rows of logits say of tokens that are given, by the row as it is and by the parameters of a draw."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, DtypeError, ParameterError, ShapeError
from logitd_kernels.head import Token
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.chain import Kept, truncated
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.prepared import Preparation
from logitd_kernels.sampling.result import RowFault
from logitd_kernels.sampling.transform import Values
from logitd_kernels.softmax import softmax

IGNORED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What one row says of its target t.

    Attributes:
        target: the token id.
        logprob_raw: natural log of its probability in the untouched row at T = 1; −inf for a masked token.
        logprob: the same of the distribution that the row's parameters draw from, after edits, temperature and
            truncation; −inf where they leave it out.
        rank: its place in the untouched row's total order (logit descending, token id ascending), the first 1.
        entropy: nats, of the untouched row at T = 1: the −logprob_raw to be expected.
        gradient: [V] p − y, of −logprob_raw by the logits: float64 for float64 rows, else float32; None unless asked.
    """

    target: int
    logprob_raw: float
    logprob: float
    rank: int
    entropy: float
    gradient: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Mean −log-probability in nats over some tokens, and e to its power; NaN for no tokens, infinite for a −inf."""

    cross_entropy: float
    perplexity: float


Answer = Score | RowFault | None


def check_targets(targets: torch.Tensor, rows: DenseRows) -> None:
    """Refuse targets that are not one token id a row, or −1 for a row that is to be left out.

    Raises:
        DtypeError, ShapeError: not int32 or int64 [B].
        ParameterError: an id outside [−1, V); `field` says which.
    """
    if targets.dtype not in (torch.int32, torch.int64):
        raise DtypeError("targets", f"expected int32 or int64, got {str(targets.dtype).removeprefix('torch.')}")
    if list(targets.shape) != [len(rows)]:
        raise ShapeError("targets", f"expected shape [{len(rows)}], one for each row, got {list(targets.shape)}")
    outside = torch.nonzero((targets < IGNORED) | (targets >= rows.vocab_size))
    if len(outside):
        place = int(outside[0])
        allowed = f"a token id in [0, {rows.vocab_size}), or -1 to leave the row out"
        raise ParameterError(f"targets[{place}]", f"must be {allowed}, got {int(targets[place])}")


def score(
    rows: DenseRows,
    targets: torch.Tensor,
    params: Sequence[Values],
    *,
    backend: Backend | None = None,
    order: Order = DEFAULT,
    gradient: bool = False,
) -> list[Answer]:
    """Return log-probabilities, rank and entropy for the target of every row.

        log p_t = (x_t − M) − log Σ e^(x − M)
        rank = 1 + #{i: x_i > x_t, or x_i = x_t and i < t}
        ∂(−log p_t)/∂x = p − y,  y_t = 1 and 0 elsewhere

    Sums are float64. A row's answer has the same bits alone and in any batch.

    Args:
        rows: the logits; a mask counts among the edits, `logprob_raw` does not know it.
        targets: [B] int32 or int64; −1 leaves a row out, whatever it holds.
        params: checked values, one mapping a row; of a row without a seed it is 0, for what depends on chance (`xtc`).
        backend: where to compute; None picks one.
        order: in which transforms act.
        gradient: whether to return p − y.
    Returns:
        For each row a `Score`, a `RowFault` where it is bad or its parameters leave no token, None where it is left
        out.
    Raises:
        DtypeError, ShapeError, ParameterError: see `check_targets`; a parameter that its row shows to be impossible.
    """
    check_targets(targets, rows)
    if len(params) != len(rows):
        raise ParameterError("params", f"expected one object for each of {len(rows)} rows, got {len(params)}")
    backend = backend or pick("auto")
    raw = softmax(DenseRows(rows.logits.double()), [1.0] * len(rows), "log_softmax", backend)
    assert raw.values is not None
    faults = {fault.row: fault for fault in raw.faults}
    preparation = Preparation(rows, backend, order)
    answers: list[Answer] = []
    for row, (target, values) in enumerate(zip(targets.tolist(), params, strict=True)):
        if target == IGNORED or row in faults:
            answers.append(None if target == IGNORED else faults[row])
            continue
        own = raw.values[row]
        logprob_raw = float(own[target])
        try:
            logprob = _processed(preparation, order, row, target, values, logprob_raw)
        except BadRow as bad:
            answers.append(RowFault(row, bad.code, bad.kind, bad.detail))
            continue
        slope = _slope(own, target, rows.logits.dtype) if gradient else None
        rank = _rank(rows.logits[row], target)
        answers.append(Score(target, logprob_raw, logprob, rank, float(raw.entropy[row]), slope))
    return answers


def loss_of(logprobs: Sequence[float]) -> Loss:
    """Return cross-entropy and perplexity of tokens with these log-probabilities; their order does not matter."""
    if not logprobs:
        return Loss(math.nan, math.nan)
    mean = -math.fsum(logprobs) / len(logprobs) + 0.0  # not −0
    try:
        return Loss(mean, math.exp(mean))
    except OverflowError:
        return Loss(mean, math.inf)


def _processed(
    preparation: Preparation, order: Order, row: int, target: int, values: Values, logprob_raw: float
) -> float:
    """Return the target's log-probability in what a row is drawn from.

    Raises:
        BadRow: the parameters leave no token.
        ParameterError: a parameter that the row shows to be impossible.
    """
    own = {**preparation.known(row, values), "seed": values["seed"] or 0}
    if not order.active(own):
        return logprob_raw
    prepared = preparation.row(row, values, own)
    if order.is_greedy(own):
        return 0.0 if prepared.head(1).token(0).id == target else -math.inf
    kept = truncated(prepared, own, order.steps)
    token = _among(kept, target)
    return -math.inf if token is None else kept.logprob_of(token)


def _among(kept: Kept, target: int) -> Token | None:
    """Return the target as one of the tokens kept, None where it is not."""
    logit = kept.row.logit_of(target)
    if logit == -math.inf:
        return None
    if kept.weights is None and not kept.dropped:
        last = kept.row.above(logit).count  # of those that tie with it
        if last <= kept.prefix.count:
            return Token(target, logit, last - 1)
    head = kept.row.head(kept.prefix.count)
    places = np.flatnonzero(head.ids[: kept.prefix.count] == target)
    if not len(places) or (kept.weights is not None and kept.weights[places[0]] == 0):
        return None
    return head.token(int(places[0]))


def _rank(row: torch.Tensor, target: int) -> int:
    """Return the 1-based place of a token in a row's total order."""
    own = row[target]
    return 1 + int((row > own).sum()) + int((row[:target] == own).sum())


def _slope(logprobs: torch.Tensor, target: int, dtype: torch.dtype) -> torch.Tensor:
    """Return p − y of log-probabilities [V] float64."""
    slope = torch.exp(logprobs)
    slope[target] = torch.expm1(logprobs[target])  # p − 1 where p is nearly 1
    return slope if dtype == torch.float64 else slope.float()
