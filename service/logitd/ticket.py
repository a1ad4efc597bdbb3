"""What becomes of a request's work: where its time goes, and its answers as they come in."""

import asyncio
import time
from typing import Any

from logitd.counting.series import STAGES
from logitd.work import Outcome, Work
from logitd_kernels.stopwatch import Stopwatch

STAGES_OF = "logitd.stages"  # in the scope of a request with tensors: its stages, for who observes it


class Stages(Stopwatch):
    """Where a request spends its time, and how large its body was."""

    def __init__(self) -> None:
        super().__init__(STAGES)
        self.body_bytes = 0


class Ticket:
    """Work that was handed in.

    Attributes:
        future: its answers, one a row.
        is_begun: whether a thread has taken up any of it.
        began: when that was, on time.perf_counter; None until the first part is done.
        ended: when the last part that is known of was done.
        trace: whose span was current when it was handed in; None where nothing is traced.
    """

    def __init__(self, work: Work, future: "asyncio.Future[list[Any]]") -> None:
        self.work, self.future = work, future
        self.is_begun = False
        self.began: float | None = None
        self.ended = 0.0
        self.trace: Any = None
        self.submitted = time.perf_counter()
        self._answers: list[Any] = [None] * work.rows
        self._missing = work.rows

    def settle(self, start: int, outcome: Outcome, began: float, ended: float) -> None:
        """Take in what came of some rows, computed from `began` to `ended`. One error is the error of all rows."""
        self.began, self.ended = self.began or began, ended
        if self.future.done():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
            return
        self._answers[start : start + len(outcome)] = outcome
        self._missing -= len(outcome)
        if not self._missing:
            self.future.set_result(self._answers)
