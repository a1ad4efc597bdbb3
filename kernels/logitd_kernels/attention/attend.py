"""`attend`: one call in; output, and for every head how it was computed and how wrong it is, out."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from logitd_kernels.attention.audit import Audit, Yardstick
from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.choice import Choice, choose
from logitd_kernels.attention.draft import draft
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.parts import batch_row
from logitd_kernels.attention.report import HeadReport, Judged, largest_error
from logitd_kernels.attention.sampling import ROWS
from logitd_kernels.errors import ParameterError
from logitd_kernels.stopwatch import Stopwatch

ROUNDING = 1e-5  # by which two ways to compute the same may differ in float32

Policy = Literal["strict", "best_effort"]


@dataclass(frozen=True)
class Wish:
    """How to attend.

    Attributes:
        mode: `auto`, `exact`, `exact_bf16`, `linear` or an approximate method by its name (`methods.MODES`).
        method: what `linear` is, and `auto` beyond the threshold.
        heads: a mode for each query head, as a plan has them, in place of `mode`; None for none.
        policy: `strict` recomputes exactly every head whose error may exceed `tolerance`; `best_effort` flags it.
        tolerance: relative error, ‖answer − exact‖ / ‖exact‖, that a head may have.
        threshold: `auto` is exact up to this many keys.
        options: of approximate methods.
        rows: audited rows of each sequence.
    """

    mode: str = "auto"
    method: str = "hybrid"
    heads: tuple[str, ...] | None = None
    policy: Policy = "strict"
    tolerance: float = 0.10
    threshold: int = 2048
    options: Options = field(default_factory=Options)
    rows: int = ROWS


@dataclass(frozen=True)
class Answer:
    """What `attend` gives.

    Attributes:
        output: [B, Hq, Lq, dv], the dtype of q.
        heads: [B][Hq].
        choices: [Hq], the mode of each head before it was judged, and why.
        cost: multiply-adds over those of exact attention: the mean of the heads, recomputed ones not counted.
        seconds: of the stages check, choose, attend, audit and recompute.
    """

    output: torch.Tensor
    heads: list[list[HeadReport]]
    choices: list[Choice]
    cost: float
    seconds: dict[str, float]


@torch.no_grad()
def attend(call: Call, wish: Wish = Wish()) -> Answer:
    """Attend as wished, and measure the answer.

    Audited rows are computed exactly and held against the answer, whatever the method: exact heads too.

    Raises:
        NonFiniteTensor: q, k or v holds NaN or an infinity.
        ParameterError: an impossible wish, or a method that cannot represent the call: mask, window, softcap.
        BackendUnavailable: `exact_bf16` where it cannot run.
    """
    check(wish, call.heads)
    watch = Stopwatch(("check", "choose", "attend", "audit", "recompute"))
    with watch("check"):
        call.check_finite()
    with watch("choose"):
        choices = _choices(call, wish)
    with watch("attend"):
        drafted = draft(call, choices, wish.options)
    with watch("audit"):
        yardstick = Yardstick.of(call, wish.rows, wish.options.seed)
        measured = yardstick.audit(drafted.output)
    exactly = torch.tensor([choice.mode == "exact" for choice in choices]).expand(call.q.shape[:2])
    over = _over(call, measured, wish.tolerance, exactly) | (drafted.refused > 0)
    recomputed, given_up = over & ~exactly & (wish.policy == "strict"), None
    if recomputed.any():
        with watch("recompute"):
            _recompute(call, drafted.output, recomputed)
        with watch("audit"):
            given_up, measured = measured, yardstick.audit(drafted.output)
        over = _over(call, measured, wish.tolerance, exactly | recomputed)
    judged = Judged(call, choices, drafted, measured, given_up, recomputed, over)
    heads = [[judged.report(row, head) for head in range(call.heads)] for row in range(call.batch)]
    return Answer(drafted.output, heads, choices, drafted.cost, watch.seconds)


def check(wish: Wish, heads: int) -> None:
    """Refuse an impossible wish.

    Raises:
        ParameterError: naming the field.
    """
    if wish.policy not in ("strict", "best_effort"):
        raise ParameterError("policy", f'must be "strict" or "best_effort", got {wish.policy!r}')
    if not 0 <= wish.tolerance < float("inf"):
        raise ParameterError("tolerance", f"must be a finite number of at least 0, got {wish.tolerance}")
    if wish.threshold < 0:
        raise ParameterError("threshold", f"must be at least 0 keys, got {wish.threshold}")
    if wish.heads is not None and len(wish.heads) != heads:
        raise ParameterError("heads", f"expected a mode for each of {heads} heads, got {len(wish.heads)}")
    if wish.rows < 2:
        raise ParameterError("audit_rows", f"must be at least 2, got {wish.rows}")


def _choices(call: Call, wish: Wish) -> list[Choice]:
    if wish.heads is None:
        return [choose(call, wish.mode, wish.method, wish.threshold, wish.tolerance)] * call.heads
    by_mode = {mode: choose(call, mode, wish.method, wish.threshold, wish.tolerance) for mode in set(wish.heads)}
    return [by_mode[mode] for mode in wish.heads]


def _over(call: Call, measured: Audit, tolerance: float, exactly: torch.Tensor) -> torch.Tensor:
    """Return which heads may err by more than the tolerance, [B, Hq] bool; exact ones, [B, Hq] bool, may round."""
    allowed = torch.where(exactly, max(tolerance, ROUNDING, torch.finfo(call.q.dtype).eps), tolerance)
    return ~(largest_error(measured) <= allowed)  # NaN is over


def _recompute(call: Call, output: torch.Tensor, given_up: torch.Tensor) -> None:
    """Put exact heads in place of those that `given_up`, [B, Hq] bool, names."""
    for index in range(call.batch):
        heads = given_up[index].nonzero()[:, 0]
        if len(heads):
            row = batch_row(call, index).select(heads)
            output[index, heads, : row.queries] = exact(row, statistics=False).output[0]
