"""Between rows with parameters and the compiled hot chain."""

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import torch

from logitd_kernels.errors import BadRow
from logitd_kernels.hot import ALL_MASKED, HOT, NAN, OK, Hot, hot_batch
from logitd_kernels.rows import DenseRows, Edits
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.sampling.transform import Values

_COLD = [transform for transform in TRANSFORMS if transform.name not in HOT]


def is_hot(values: Values) -> bool:
    """Whether the compiled chain covers everything that these parameters make active."""
    return values["n"] == 1 and not any(transform.active(values) for transform in _COLD)


def sample_hot(
    hot: Hot,
    rows: DenseRows,
    indices: Sequence[int],
    values: Sequence[Values],
    edits: Callable[[int, Values], Edits],
) -> list[RowResult | RowFault]:
    """Run the rows of some indices through the compiled chain and return their answers, in that order."""
    own = [values[index] for index in indices]
    edited = [edits(index, values[index]) for index in indices]
    seeds = [one["seed"] if one["seed"] is not None else secrets.randbits(53) for one in own]
    batch = hot_batch(
        rows.logits,
        indices,
        own,
        seeds,
        [one.allowed for one in edited],
        [one.bias for one in edited],
    )
    answers = zip(indices, seeds, hot(batch).tolist(), strict=True)
    return [answer_of(rows.logits, index, seed, answer) for index, seed, answer in answers]


def answer_of(logits: torch.Tensor, index: int, seed: int, answer: tuple[Any, ...]) -> RowResult | RowFault:
    """Return what an ANSWER says of a row of logits [B, V]."""
    status, place, token, logprob, entropy, entropy_kept, kept, kept_mass = answer
    if status != OK:
        return fault_of(logits, index, status, place)
    return RowResult([token], [logprob], entropy, entropy_kept, kept, kept_mass, seed)


def fault_of(logits: torch.Tensor, index: int, status: int, place: int) -> RowFault:
    """Return the fault of a row that a compiled kernel refused, worded as everywhere."""
    if status == ALL_MASKED:
        whole = not bool((logits[index] > -float("inf")).any())
        bad = BadRow.all_masked("every logit is -inf" if whole else "the mask, bias and bans leave no token")
    else:
        kind = "nan" if status == NAN else "posinf"
        sent = float(logits[index, place])
        bad = BadRow.non_finite(place, sent if sent != sent else float("inf"), kind)
    return RowFault(index, bad.code, bad.kind, bad.detail)
