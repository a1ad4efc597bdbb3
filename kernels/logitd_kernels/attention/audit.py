"""Audit: some rows of an answer held against exact attention, for an estimate of every head's error."""

from dataclasses import dataclass, fields
from typing import Self

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.exact_rows import ExactRows, exact_rows
from logitd_kernels.attention.parts import batch_row
from logitd_kernels.errors import ShapeError

ROWS = 64
RESAMPLES = 200
MARGIN = 0.2
SATURATED_PROB, SATURATED_ENTROPY = 0.99, 0.02


@dataclass(frozen=True)
class Audit:
    """What audited rows say of each head; all [B, Hq] float64 but the last. Heads without an audited row have 0.

    Attributes:
        error: the relative error, ‖answer − exact‖ / ‖exact‖ over the rows.
        low, high: its interval, within which the error of the whole head lies nine times in ten: 5 % and 95 % of
            resampled rows, and at least a fifth to either side, for few rows know little of their own tail.
        mean_v_error: the error of answering with the mean of the values instead, on the same rows.
        max_row_error: the largest ‖answer − exact‖ / ‖exact‖ of one row.
        entropy: mean entropy of the exact weights, nats.
        normalised_entropy: mean of the entropy over the log of how many keys are seen; 1 where that is one.
        max_prob: mean of the largest exact weight.
        saturated: bool, attention is a lookup: the largest weight is 0.99 on average, or the normalised entropy 0.02.
    """

    error: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    mean_v_error: torch.Tensor
    max_row_error: torch.Tensor
    entropy: torch.Tensor
    normalised_entropy: torch.Tensor
    max_prob: torch.Tensor
    saturated: torch.Tensor

    @classmethod
    def of(cls, answer: torch.Tensor, exact: ExactRows, seed: int = 0) -> Self:
        """Judge some rows.

        Args:
            answer: [B, Hq, R, dv], what a method says there.
            exact: what is right there; rows that see no key do not count.
            seed: of the resampling.
        """
        counted = exact.seen > 0  # [B, Hq, R]
        wrong = _squares(answer.double() - exact.output).masked_fill(~counted, 0)
        right = _squares(exact.output).masked_fill(~counted, 0)
        error = _ratio(wrong.sum(2), right.sum(2))
        low, high = _interval(wrong, right, seed)
        entropy, max_prob = _mean(exact.entropy, counted), _mean(exact.max_prob, counted)
        several = exact.seen.clamp(min=2).double().log()
        normalised = _mean(torch.where(exact.seen > 1, exact.entropy / several, 1.0), counted)
        mean_v = _squares(exact.mean_v.double() - exact.output).masked_fill(~counted, 0)
        return cls(
            error=error,
            low=torch.minimum(low, (1 - MARGIN) * error),
            high=torch.maximum(high, (1 + MARGIN) * error),
            mean_v_error=_ratio(mean_v.sum(2), right.sum(2)),
            max_row_error=torch.nn.functional.pad(_ratio(wrong, right), (0, 1)).amax(2),
            entropy=entropy,
            normalised_entropy=normalised,
            max_prob=max_prob,
            saturated=counted.any(2) & ((max_prob > SATURATED_PROB) | (normalised < SATURATED_ENTROPY)),
        )

    @classmethod
    def stack(cls, audits: list[Self]) -> Self:
        """Join the audits of batch rows, at least one."""
        return cls(*(torch.cat([getattr(each, field.name) for each in audits]) for field in fields(cls)))


def audit_rows(queries: int, n: int = ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows to fit on and rows to report on, each ascending: [≤ n / 2] and [≤ n] int64.

    Reported are the middles of n equal stretches, all rows where there are no more. Fitted are borders between these,
    as far as they are not reported.
    """
    count = min(n, queries)
    report = _middles(queries, count)
    fit = _middles(queries, count // 2)
    return fit[~torch.isin(fit, report)], report


def _middles(queries: int, count: int) -> torch.Tensor:
    return (2 * torch.arange(count) + 1) * queries // (2 * max(count, 1))


def seeing(row: Call) -> range:
    """Return the queries that see a key, in a call as `batch_row` gives it; masks are not looked at."""
    if not row.keys:
        return range(0)
    first = max(0, -int(row.offsets()[0])) if row.visible.causal else 0
    return range(min(first, row.queries), row.queries)


@torch.no_grad()
def audit(call: Call, answer: torch.Tensor, rows: int = ROWS, seed: int = 0) -> Audit:
    """Compute some rows of every head exactly, O(rows · Lk · (d + dv)), and hold an answer against them.

    Args:
        call: any call.
        answer: [B, Hq, Lq, dv], what some method made of it.
        rows: how many of each sequence; they are spread evenly over the queries that see a key.
        seed: of the interval.
    Raises:
        ShapeError: an answer of another shape.
    """
    wanted = (*call.q.shape[:3], call.v.shape[3])
    if answer.shape != wanted:
        raise ShapeError("answer", f"expected {list(wanted)}, got {list(answer.shape)}")
    audits = []
    for index in range(call.batch):
        row = batch_row(call, index)
        live = seeing(row)
        chosen = audit_rows(len(live), rows)[1] + live.start
        audits.append(Audit.of(answer[index : index + 1, :, chosen], exact_rows(row, chosen), seed))
    if not audits:
        return Audit.of(answer[:, :, :0], ExactRows.blank(call, 0), seed)
    return Audit.stack(audits)


def _squares(x: torch.Tensor) -> torch.Tensor:
    return x.double().square().sum(-1)


def _ratio(wrong: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return √(wrong / right): 0 for 0 / 0, infinite where only what is right is 0."""
    return torch.where(wrong > 0, wrong / right, 0).sqrt()


def _mean(x: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    return x.double().masked_fill(~counted, 0).sum(2) / counted.sum(2).clamp(min=1)


def _interval(wrong: torch.Tensor, right: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bootstrap the error over rows: the 5 % and 95 % quantiles, [B, Hq]."""
    rows = wrong.shape[2]
    if not wrong.numel():
        return wrong.sum(2), wrong.sum(2)
    draws = torch.randint(rows, (RESAMPLES, rows), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(RESAMPLES, rows, dtype=torch.float64).scatter_add_(1, draws, torch.ones(draws.shape).double())
    errors = _ratio(wrong @ counts.T, right @ counts.T)  # [B, Hq, RESAMPLES]
    low, high = torch.quantile(errors, torch.tensor([0.05, 0.95], dtype=torch.float64), dim=2)
    return low, high
