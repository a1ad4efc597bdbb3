"""Between rows with parameters and the compiled hot chain."""

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from logitd_kernels.errors import BadRow
from logitd_kernels.hot import ALL_MASKED, HOT, NAN, OK, Hot, hot_batch
from logitd_kernels.rows import DenseRows, Edits
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.sampling.transform import Values


def is_hot(values: Values) -> bool:
    """Whether the compiled chain covers everything that these parameters make active."""
    return values["n"] == 1 and all(one.name in HOT or not one.active(values) for one in TRANSFORMS)


def sample_hot(
    hot: Hot,
    rows: DenseRows,
    indices: Sequence[int],
    values: Sequence[Values],
    edits: Callable[[int, Values], Edits],
) -> dict[int, RowResult | RowFault]:
    """Run rows through the compiled chain and return their answers by index."""
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
    return {index: _answer(rows, index, seed, answer) for index, seed, answer in answers}


def _answer(rows: DenseRows, index: int, seed: int, answer: tuple[Any, ...]) -> RowResult | RowFault:
    status, place, token, logprob, entropy, entropy_kept, kept, kept_mass = answer
    if status != OK:
        return fault_of(rows, index, status, place)
    return RowResult([token], [logprob], entropy, entropy_kept, kept, kept_mass, seed)


def fault_of(rows: DenseRows, index: int, status: int, place: int) -> RowFault:
    """Return the fault of a row that a compiled kernel refused, worded as everywhere."""
    if status == ALL_MASKED:
        whole = not bool((rows.logits[index] > -float("inf")).any())
        bad = BadRow.all_masked("every logit is -inf" if whole else "the mask, bias and bans leave no token")
    else:
        kind = "nan" if status == NAN else "posinf"
        sent = float(rows.logits[index, place])
        bad = BadRow.non_finite(place, sent if sent != sent else float("inf"), kind)
    return RowFault(index, bad.code, bad.kind, bad.detail)
