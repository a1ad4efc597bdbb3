"""No figure for who answers wrongly: every token drawn must lie in the set that the reference keeps."""

from collections.abc import Sequence

import numpy as np
import torch
from loadtest.kernels.cases import Work
from loadtest.kernels.timing import Contender

from logitd_kernels import DenseRows, RowFault, pick
from logitd_kernels.sampling.distribution import distribution

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
    ids = [kept_ids(work, place) for place in range(len(work.blocks[:_CALLS]))]
    kept, wrong = [], []
    for contender in contenders:
        fault = _fault(contender, work, ids)
        if fault and contender.ours:
            raise WrongAnswerError(f"{contender.name}: {fault}")
        if fault:
            wrong.append(f"{contender.name} left out: {fault}")
        else:
            kept.append(contender)
    return kept, wrong


def kept_ids(work: Work, place: int) -> list[set[int]]:
    """Return the ids that the reference keeps of each row of a block."""
    rows = DenseRows(work.blocks[place], **work.beside(place))
    found = distribution(rows, work.values(place), pick("reference"))
    assert not any(isinstance(one, RowFault) for one in found)
    return [set(np.flatnonzero(one).tolist()) for one in found]


def _fault(contender: Contender, work: Work, kept: list[list[set[int]]]) -> str | None:
    for index, block in enumerate(work.blocks[:_CALLS]):
        drawn = contender.call(index)
        if drawn is None:
            return None
        tokens = np.asarray(drawn).reshape(-1)
        for row, token, ids in zip(block, tokens.tolist(), kept[index], strict=True):
            if token not in ids and (contender.ours or not _close(row, token, ids)):
                return f"drew token {token}, outside the kept set ({work.kind} rows, {work.case.name})"
    return None


def _close(row: torch.Tensor, token: int, kept: set[int]) -> bool:
    """Whether a token's logit is hardly below the smallest that is kept."""
    return 0 <= token < len(row) and float(row[token]) >= float(row[list(kept)].min()) - _SLACK
