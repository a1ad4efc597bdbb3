"""What became of each head: how it was computed, why, and how wrong it is."""

from dataclasses import dataclass

import torch

from logitd_kernels.attention.audit import Audit
from logitd_kernels.attention.call import Call
from logitd_kernels.attention.choice import Choice
from logitd_kernels.attention.draft import Draft


def largest_error(audit: Audit) -> torch.Tensor:
    """Return what the error of each head may be, [B, Hq]: as its drawn rows tell, or its outlying rows alone."""
    return torch.maximum(audit.high, audit.outlying_error)


@dataclass(frozen=True)
class HeadReport:
    """What became of one head of one batch row.

    Attributes:
        mode: how it was computed.
        why: one of `choice.WHYS`.
        reason: the same in words.
        approximate_error: measured error of the approximation that was given up for `exact`; None where none was tried.
        over_tolerance: the answer's error may exceed the tolerance.
        nonpositive_rows: queries whose normaliser failed.
        state_bytes: what the head would keep in place of `kv_bytes` of keys and values; None for exact.
        kv_bytes: keys and values in the caller's dtype.
        relative_error to saturated: as in `Audit`.
    """

    mode: str
    why: str
    reason: str
    relative_error: float
    error_low: float
    error_high: float
    approximate_error: float | None
    over_tolerance: bool
    mean_v_error: float
    max_row_error: float
    entropy: float
    normalised_entropy: float
    max_prob: float
    saturated: bool
    nonpositive_rows: int
    state_bytes: int | None
    kv_bytes: int


@dataclass(frozen=True)
class Judged:
    """Everything that the reports of a call are made of.

    Attributes:
        given_up: the audit before heads were recomputed; None where none was.
        recomputed: [B, Hq] bool, heads that were given up for exact attention.
        over: [B, Hq] bool, heads whose error may exceed the tolerance as they are now.
    """

    call: Call
    choices: list[Choice]
    draft: Draft
    measured: Audit
    given_up: Audit | None
    recomputed: torch.Tensor
    over: torch.Tensor

    def report(self, row: int, head: int) -> HeadReport:
        """Return what became of a head."""
        place, measured, choice = (row, head), self.measured, self.choices[head]
        given_up = self.given_up if self.recomputed[place] else None
        if given_up is not None:
            choice = Choice("exact", "given_up", self._why_given_up(choice, given_up, place))
        state_bytes = None if choice.mode == "exact" else self.draft.state_bytes[head]
        k, v = self.call.k, self.call.v
        return HeadReport(
            mode=choice.mode,
            why=choice.why,
            reason=choice.reason,
            relative_error=float(measured.error[place]),
            error_low=float(measured.low[place]),
            error_high=float(measured.high[place]),
            approximate_error=None if given_up is None else float(given_up.error[place]),
            over_tolerance=bool(self.over[place]),
            mean_v_error=float(measured.mean_v_error[place]),
            max_row_error=float(measured.max_row_error[place]),
            entropy=float(measured.entropy[place]),
            normalised_entropy=float(measured.normalised_entropy[place]),
            max_prob=float(measured.max_prob[place]),
            saturated=bool(measured.saturated[place]),
            nonpositive_rows=int(self.draft.refused[place]),
            state_bytes=state_bytes,
            kv_bytes=int(self.call.lengths()[row]) * (k.shape[3] + v.shape[3]) * k.element_size(),
        )

    def _why_given_up(self, choice: Choice, audit: Audit, place: tuple[int, int]) -> str:
        if self.draft.refused[place]:
            return f"{choice.mode} was given up: {int(self.draft.refused[place])} normalisers failed"
        return f"{choice.mode} was given up: its error may be {float(largest_error(audit)[place]):.3g}"
