"""No figure for who answers wrongly: every token drawn must lie in the set that the reference keeps."""

from collections.abc import Sequence

import numpy as np
import torch
from loadtest.kernels.cases import Case, Work
from loadtest.kernels.timing import Contender

from logitd_kernels import DenseRows, RowResult, check, pick, sample

_SLACK = 0.02  # float32 cumulative sums of a flat row end a little off
_CALLS = 8


class WrongAnswerError(Exception):
    """A contender of ours drew a token outside the kept set."""


def right(work: Work, contenders: Sequence[Contender]) -> tuple[list[Contender], list[str]]:
    """Return the contenders whose tokens lie in the kept set, or that draw none, and a line for each other one.

    Raises:
        WrongAnswerError: one of ours is among the others.
    """
    if work.case.softmax:
        return list(contenders), []
    floors = [[_floor(row, work.case) for row in block] for block in work.blocks[:_CALLS]]
    kept, wrong = [], []
    for contender in contenders:
        fault = _fault(contender, work, floors)
        if fault and contender.ours:
            raise WrongAnswerError(f"{contender.name}: {fault}")
        if fault:
            wrong.append(f"{contender.name} left out: {fault}")
        else:
            kept.append(contender)
    return kept, wrong


def _floor(row: torch.Tensor, case: Case) -> float:
    """Return the smallest logit that the reference keeps."""
    values = check({**case.params, "seed": 1})
    (answer,) = sample(DenseRows(row[None]), values, backend=pick("reference"))
    assert isinstance(answer, RowResult)
    return float(torch.topk(row, answer.kept or 1).values[-1])


def _fault(contender: Contender, work: Work, floors: list[list[float]]) -> str | None:
    for index, block in enumerate(work.blocks[:_CALLS]):
        drawn = contender.call(index)
        if drawn is None:
            return None
        tokens = np.asarray(drawn).reshape(-1)
        slack = 0.0 if contender.ours else _SLACK
        for row, token, floor in zip(block, tokens.tolist(), floors[index], strict=True):
            if not 0 <= token < len(row) or float(row[token]) < floor - slack:
                return f"drew token {token}, outside the kept set ({work.kind} rows, {work.case.name})"
    return None
