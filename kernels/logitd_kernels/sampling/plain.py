"""Rows straight out of a buffer, all with the same plain parameters: the compiled chain with nothing in between.

It is what most requests ask for, and what `sample` answers to it: the same chain, the same records.
"""

import secrets
from struct import Struct

import torch

from logitd_kernels.hot import ANSWER, HOT, OK, REQUEST, Plain, PlainRows, request
from logitd_kernels.sampling.hot import answer_of
from logitd_kernels.sampling.parameters import Choice, Flag, Number
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.sampling.transform import Values

_OF_HOT = [one for step in TRANSFORMS if step.name in HOT for one in step.parameters]
# Parameters that need no edit of single logits, and make one draw.
PLAIN = frozenset({one.name for one in _OF_HOT if isinstance(one, (Number, Choice, Flag))} | {"seed", "stream", "step"})

_NONE = torch.empty(0, 0)  # nobody looks at the logits of rows that went well
_REQUEST, _ANSWER = Struct("@qqqddqddddQII?BBB4x"), Struct("@i4xqqdddqd")
assert (_REQUEST.size, _ANSWER.size) == (REQUEST.itemsize, ANSWER.itemsize)


def sample_plain(plain: Plain, rows: PlainRows, values: Values, first: int, last: int) -> list[RowResult | RowFault]:
    """Draw a token from each of some rows.

    Args:
        plain: of the backend.
        rows: the buffer.
        values: checked parameters, none but those of PLAIN set.
        first: the first row.
        last: one past the last.
    Returns:
        What `sample` does for the same rows; a fault's row counts from the first of the buffer.
    """
    own, places = values["seed"], range(first, last)
    seeds = [secrets.randbits(53) if own is None else own for _ in places]
    records = [request(row, 0, 0, values, seed, rows.vocab_size) for row, seed in zip(places, seeds, strict=True)]
    answers = list(_ANSWER.iter_unpack(plain(rows, b"".join([_REQUEST.pack(*record) for record in records]))))
    logits = rows.tensor() if any(answer[0] != OK for answer in answers) else _NONE
    return [answer_of(logits, row, seed, answer) for row, seed, answer in zip(places, seeds, answers, strict=True)]
