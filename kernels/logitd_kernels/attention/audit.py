"""Audit: some rows of an answer held against exact attention, for an estimate of every head's error."""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.exact_rows import ExactRows, exact_rows, head_rows
from logitd_kernels.attention.parts import batch_row
from logitd_kernels.attention.sampling import ROWS, outlying_rows, rows_of, seeing
from logitd_kernels.errors import ShapeError

RESAMPLES = 200
MARGIN = 0.25
SATURATED_PROB, SATURATED_ENTROPY = 0.99, 0.02


@dataclass(frozen=True)
class Audit:
    """What audited rows say of each head; all [B, Hq] float64 but the last. Heads without an audited row have 0.

    An answer that is not finite is infinitely wrong, and so is any where exact attention is not.

    Attributes:
        error: the relative error, ‖answer − exact‖ / ‖exact‖ over the rows.
        low, high: its interval, within which the error of the whole head lies nine times in ten: 5 % and 95 % of
            resampled rows, and at least a quarter to either side, for few rows know little of their own tail.
        mean_v_error: the error of answering with the mean of the values instead, on the same rows.
        max_row_error: the largest ‖answer − exact‖ / ‖exact‖ of one row, outlying ones included.
        outlying_error: what outlying rows alone make of the error of the head: ‖answer − exact‖ over them, by ‖exact‖
            of the whole head as audited rows tell it. They are in no other error: they are not like the rest.
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
    outlying_error: torch.Tensor
    entropy: torch.Tensor
    normalised_entropy: torch.Tensor
    max_prob: torch.Tensor
    saturated: torch.Tensor

    @classmethod
    def of(cls, answer: torch.Tensor, exact: ExactRows, seed: int = 0) -> Self:
        """Judge some rows, none of them outlying.

        Args:
            answer: [B, Hq, R, dv], what a method says there.
            exact: what is right there; rows that see no key do not count.
            seed: of the resampling.
        """
        counted, unit = exact.seen > 0, _unit(exact.output)  # [B, Hq, R]
        right = _squares(exact.output.double() / unit).masked_fill(~counted, 0)
        wrong = _squares((answer.double() - exact.output) / unit).masked_fill(~counted, 0)
        mean_v = _squares((exact.mean_v.double() - exact.output) / unit).masked_fill(~counted, 0)
        error = _ratio(wrong.sum(2), right.sum(2))
        low, high = _interval(wrong, right, seed)
        entropy, max_prob = _mean(exact.entropy, counted), _mean(exact.max_prob, counted)
        several = exact.seen.clamp(min=2).double().log()
        normalised = _mean(torch.where(exact.seen > 1, exact.entropy / several, 1.0), counted)
        return cls(
            error=error,
            low=torch.minimum(low, (1 - MARGIN) * error),
            high=torch.maximum(high, (1 + MARGIN) * error),
            mean_v_error=_ratio(mean_v.sum(2), right.sum(2)),
            max_row_error=torch.nn.functional.pad(_ratio(wrong, right), (0, 1)).amax(2),
            outlying_error=torch.zeros_like(error),
            entropy=entropy,
            normalised_entropy=normalised,
            max_prob=max_prob,
            saturated=counted.any(2) & ((max_prob > SATURATED_PROB) | (normalised < SATURATED_ENTROPY)),
        )

    @classmethod
    def stack(cls, audits: list[Self]) -> Self:
        """Join the audits of batch rows, at least one."""
        return cls(*(torch.cat([getattr(each, field.name) for each in audits]) for field in fields(cls)))


@dataclass(frozen=True)
class Yardstick:
    """Some rows of every head, attended exactly once: any number of answers to one call can be held against them.

    Attributes:
        shape: of an answer, [B, Hq, Lq, dv].
        seed: of the rows and of the interval.
        rows: of each batch row.
    """

    shape: tuple[int, ...]
    seed: int
    rows: list["_RowYardstick"]

    @classmethod
    @torch.no_grad()
    def of(cls, call: Call, rows: int = ROWS, seed: int = 0) -> Self:
        """Attend exactly with some queries, O(rows · Lk · (d + dv)) a head.

        Args:
            call: any call.
            rows: how many of each sequence; they are drawn from equal stretches of the queries that see a key. A few
                outlying ones come on top.
            seed: of the rows and of the interval.
        """
        shape = (*call.q.shape[:3], call.v.shape[3])
        return cls(shape, seed, [_RowYardstick.of(batch_row(call, index), rows, seed) for index in range(call.batch)])

    def audit(self, answer: torch.Tensor) -> Audit:
        """Judge an answer, [B, Hq, Lq, dv]; it is looked through for what is not finite.

        Raises:
            ShapeError: an answer of another shape.
        """
        if answer.shape != self.shape:
            raise ShapeError("answer", f"expected {list(self.shape)}, got {list(answer.shape)}")
        if not self.rows:
            nobody = answer[:, :, :0]
            return Audit.of(nobody, ExactRows(nobody, nobody, *(nobody[..., 0],) * 2, nobody[..., 0].long()), self.seed)
        return Audit.stack([row.audit(answer[index : index + 1], self.seed) for index, row in enumerate(self.rows)])


@dataclass(frozen=True)
class _RowYardstick:
    """The yardstick of one batch row.

    Attributes:
        chosen: the drawn rows.
        exact: what is right there.
        outlying: for each head its outlying rows, and what is right there, [n, dv] float64.
        live: how many queries see a key.
    """

    chosen: torch.Tensor
    exact: ExactRows
    outlying: list[tuple[torch.Tensor, torch.Tensor]]
    live: int

    @classmethod
    def of(cls, row: Call, rows: int, seed: int) -> Self:
        chosen = rows_of(row, rows, seed)[1]
        outlying = []
        for head in range(row.heads):
            places = outlying_rows(row, head)
            right = head_rows(row, head, places).output if len(places) else row.v.new_zeros(0, row.v.shape[3])
            outlying.append((places, right.double()))
        return cls(chosen, exact_rows(row, chosen), outlying, len(seeing(row)))

    def audit(self, answer: torch.Tensor, seed: int) -> Audit:
        found = Audit.of(answer[:, :, self.chosen], self.exact, seed)
        outlying, largest = self._outlying(answer)
        broken = _broken(answer)
        infinite = {name: getattr(found, name).masked_fill(broken, torch.inf) for name in ("error", "low", "high")}
        largest = torch.maximum(found.max_row_error, largest).masked_fill(broken, torch.inf)
        return replace(found, **infinite, max_row_error=largest, outlying_error=outlying)

    def _outlying(self, answer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `outlying_error` and the largest error of an outlying row, both [1, Hq]; drawn rows tell the norm."""
        unit, drawn = _unit(self.exact.output), self.exact
        mean = _squares(drawn.output.double() / unit).sum(2) / (drawn.seen > 0).sum(2).clamp(min=1)
        error, largest = torch.zeros_like(mean), torch.zeros_like(mean)
        for head, (rows, exact) in enumerate(self.outlying):
            if len(rows):
                wrong = _squares((answer[0, head, rows].double() - exact) / unit[0, head])
                right = _squares(exact / unit[0, head])
                error[0, head] = _ratio(wrong.sum(), right.sum() + mean[0, head] * (self.live - len(rows)))
                largest[0, head] = _ratio(wrong, right).amax()
        return error, largest


def audit(call: Call, answer: torch.Tensor, rows: int = ROWS, seed: int = 0) -> Audit:
    """Hold one answer against exact attention on some rows: `Yardstick.of` and `Yardstick.audit` in one.

    Raises:
        ShapeError: an answer of another shape.
    """
    return Yardstick.of(call, rows, seed).audit(answer)


def _broken(answer: torch.Tensor) -> torch.Tensor:
    """Return which heads hold what is not finite, [1, Hq] bool."""
    finite = torch.isfinite(answer.sum((2, 3), dtype=torch.float32))  # quick, and never true by mistake
    return torch.zeros_like(finite) if finite.all() else ~torch.isfinite(answer).flatten(2).all(2)


def _unit(exact: torch.Tensor) -> torch.Tensor:
    """Return a magnitude of each head's answers, [B, Hq, 1, 1] float64: over it, no square leaves float64."""
    largest = torch.nn.functional.pad(exact.double().abs().flatten(2), (0, 1)).amax(2)[..., None, None]
    return torch.where((largest > 0) & torch.isfinite(largest), largest, 1.0)


def _squares(x: torch.Tensor) -> torch.Tensor:
    """Sum squares over the last dim; infinite where something is not finite."""
    return torch.nan_to_num(x.square().sum(-1), nan=torch.inf, posinf=torch.inf)


def _ratio(wrong: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return √(wrong / right): 0 for 0 / 0, infinite where only what is right is 0, and where `wrong` is infinite."""
    return torch.where(wrong > 0, wrong / right, 0).masked_fill(wrong == torch.inf, torch.inf).sqrt()


def _mean(x: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    return x.double().masked_fill(~counted, 0).sum(2) / counted.sum(2).clamp(min=1)


def _interval(wrong: torch.Tensor, right: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bootstrap the error over rows: the 5 % and 95 % quantiles, [B, Hq]; infinite with an infinite row."""
    rows = wrong.shape[2]
    if not wrong.numel():
        return wrong.sum(2), wrong.sum(2)
    broken = wrong == torch.inf
    wrong, right = (x.masked_fill(broken, 0) for x in (wrong, right))  # 0 · ∞ of a row that was not drawn is NaN
    draws = torch.randint(rows, (RESAMPLES, rows), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(RESAMPLES, rows, dtype=torch.float64).scatter_add_(1, draws, torch.ones(draws.shape).double())
    errors = _ratio(wrong @ counts.T, right @ counts.T)  # [B, Hq, RESAMPLES]
    bounds = torch.tensor([0.05, 0.95], dtype=torch.float64)
    low, high = torch.quantile(errors, bounds, dim=2, interpolation="nearest")  # between ∞ and ∞ lies NaN
    return low.masked_fill(broken.any(2), torch.inf), high.masked_fill(broken.any(2), torch.inf)
