"""Between rows with parameters and the compiled hot chain."""

import secrets
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.edits import Edits
from logitd_kernels.errors import BadRow
from logitd_kernels.hot import ALL_MASKED, HOT, NAN, OK, PENALTIES, Hot, hot_batch
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.sampling.transform import Cut, Scale, Values

_OF_HOT = [one for one in (*DEFAULT.edits, *DEFAULT.steps) if one.name in HOT]
_OF_COLD = [one for one in (*DEFAULT.mixes, *DEFAULT.edits, *DEFAULT.steps) if one.name not in HOT]
_cold = itemgetter(*(one.parameter.name for one in _OF_COLD if one.parameter is not None))
_AT_REST = tuple(one.parameter.neutral for one in _OF_COLD if one.parameter is not None)
_HOT_EDITS = [one.parameter for one in DEFAULT.edits if one.name in HOT and one.parameter is not None]
_edits_of = itemgetter(*(one.name for one in _HOT_EDITS))
_NO_EDITS = tuple(one.neutral for one in _HOT_EDITS)
_NO_BIAS: dict[int, float] = {}


def is_hot(values: Values, order: Order = DEFAULT, *, counts_history: bool = False) -> bool:
    """Whether the compiled chain covers everything that these parameters make active, in that order.

    `counts_history` says whether it counts the tokens of a sequence, for the penalties.
    """
    if values["n"] != 1:
        return False
    if _cold(values) != _AT_REST:
        cold = [one.name for one in _OF_COLD if one.asked(values)]
        if cold and not (counts_history and order is DEFAULT and _only_penalties(cold, values)):
            return False
    if order is DEFAULT:
        return True
    own = [one.name for one in order.active(values) if isinstance(one, (Scale, Cut))]
    return own == [one.name for one in _OF_HOT if isinstance(one, (Scale, Cut)) and one.active(values)]


def _only_penalties(names: Sequence[str], values: Values) -> bool:
    whole = not values["penalty_window"] and not values["penalty_exempt_ids"]
    return whole and all(name in PENALTIES for name in names)


def hot_rows(values: Sequence[Values], order: Order, *, counts_history: bool) -> list[int]:
    """Return which rows the compiled chain covers; rows may share their parameters."""
    known = {id(one): is_hot(one, order, counts_history=counts_history) for one in {id(v): v for v in values}.values()}
    return [index for index, one in enumerate(values) if known[id(one)]]


def sample_hot(
    hot: Hot,
    rows: DenseRows,
    indices: Sequence[int],
    values: Sequence[Values],
    edits: Callable[[int, Values], Edits],
) -> list[RowResult | RowFault]:
    """Run the rows of some indices, ascending, through the compiled chain and return their answers, in that order.

    `edits` gives what is done to a row besides its mask and its history.
    """
    own = [values[index] for index in indices]
    edited = [None if _edits_of(values[index]) == _NO_EDITS else edits(index, values[index]) for index in indices]
    seeds = [one["seed"] if one["seed"] is not None else secrets.randbits(53) for one in own]
    batch = hot_batch(
        rows.logits,
        indices,
        own,
        seeds,
        [None if one is None else one.allowed for one in edited],
        [_NO_BIAS if one is None else one.bias for one in edited],
        (_history(rows.prompt_ids), _history(rows.output_ids)),
        _mask(rows.mask, indices),
    )
    answers = zip(indices, seeds, hot(batch).tolist(), strict=True)
    return [answer_of(rows.logits, index, seed, answer) for index, seed, answer in answers]


def _history(ids: torch.Tensor | None) -> NDArray[np.int32] | None:
    return None if ids is None else ids.to(torch.int32).contiguous().numpy()


def _mask(mask: torch.Tensor | None, indices: Sequence[int]) -> NDArray[np.uint32] | None:
    """Return the words of some rows' masks, as they lie where that is all rows."""
    if mask is None:
        return None
    words = np.ascontiguousarray(mask.numpy()).view(np.uint32)
    return words if len(indices) == len(words) else words[indices]


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
