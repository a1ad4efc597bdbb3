"""The hot chain as arrays: mask, bias, bans, temperature, min_p, top_k, top_p and one draw a row, for a whole batch.

Compiled backends take a `HotBatch` and answer one record a row. What they compute is defined by the formulas in
`sampling/` and tested equal to them; what it does not cover runs through those formulas.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.head import Floats, Ids

# Rows with only these active are the hot chain's.
HOT = frozenset({"mask", "logit_bias", "banned_ids", "allowed_ids", "temperature", "min_p", "top_k", "top_p"})

_NO_IDS, _NO_BIAS = np.empty(0, np.int64), np.empty(0)

OK, NAN, POSINF, ALL_MASKED = 0, 1, 2, 3


# These too, where the backend counts a row's history.
PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")
SIDES = {"prompt": 1, "output": 2, "both": 3}
_AT_REST, _NO_SIDES = (1.0, 0.0, 0.0), (0, 0, 0)
_penalties = itemgetter(*PENALTIES)
_scope = itemgetter("repetition_scope", "frequency_scope", "presence_scope")


# One row to sample, as the compiled kernels read it (`struct Request` in native/module.cpp).
REQUEST = np.dtype(
    [
        ("row", np.int64),  # of the batch's logits
        ("edits_begin", np.int64),  # where its edits are in `edit_ids` and `edit_bias`
        ("edits_end", np.int64),
        ("temperature", np.float64),  # 0 for greedy
        ("min_p", np.float64),  # 0 off
        ("top_k", np.int64),  # 0 off
        ("top_p", np.float64),  # 1 off
        ("repetition", np.float64),
        ("frequency", np.float64),
        ("presence", np.float64),
        ("seed", np.uint64),
        ("stream", np.uint32),
        ("step", np.uint32),
        ("ties_all", np.bool_),  # whether top_k keeps all tokens equal to the k-th
        ("repeated", np.uint8),  # which ids each penalty counts: 1 the prompt's, 2 the output's, 0 off
        ("counted", np.uint8),
        ("present", np.uint8),
    ],
    align=True,
)

# What a row answers (`struct Answer` in native/row.h); all but status and place is meaningless where it is not OK.
ANSWER = np.dtype(
    [
        ("status", np.int32),  # OK, NAN, POSINF or ALL_MASKED
        ("place", np.int64),  # the first logit that is NaN or +inf, −1 when the row is not bad for one
        ("token", np.int64),
        ("logprob", np.float64),  # this and the rest as in `RowResult`
        ("entropy", np.float64),
        ("entropy_kept", np.float64),
        ("kept", np.int64),
        ("kept_mass", np.float64),
    ],
    align=True,
)

Requests = NDArray[np.void]
Answers = NDArray[np.void]


@dataclass(frozen=True)
class HotBatch:
    """R rows to sample out of a batch of B.

    Attributes:
        logits: [B, V] float32, float16, bfloat16 or float64, any strides; never written to.
        requests: [R] of REQUEST.
        mask: [R, ⌈V/32⌉] uint32 words, least significant bit first, 1 = allowed; None allows all.
        edit_ids: [E] int64, ascending and distinct within a row.
        edit_bias: [E] float64, added to the logit in float64; −inf forbids.
        prompt_ids, output_ids: [B, L] int32, contiguous, padded with −1; None for none.
    """

    logits: torch.Tensor
    requests: Requests
    mask: NDArray[np.uint32] | None
    edit_ids: Ids
    edit_bias: Floats
    prompt_ids: NDArray[np.int32] | None = None
    output_ids: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows that lie one behind the other in a buffer; nothing is known of what is in them.

    Attributes:
        buffer: C-contiguous bytes, never written to.
        offset: where they begin, bytes; a multiple of a logit's.
        dtype: float32, float16, bfloat16 or float64.
        rows: B, at least 1.
        vocab_size: V, at least 1.
    """

    buffer: memoryview
    offset: int
    dtype: torch.dtype
    rows: int
    vocab_size: int

    def __len__(self) -> int:
        return self.rows

    def tensor(self) -> torch.Tensor:
        """Return them as a view [B, V]."""
        count = self.rows * self.vocab_size
        return torch.frombuffer(self.buffer, dtype=self.dtype, offset=self.offset, count=count).view(self.rows, -1)


Plain = Callable[[PlainRows, bytes], bytearray]  # REQUEST records in, ANSWER records out
Hot = Callable[[HotBatch], Answers]


def request(row: int, begin: int, end: int, values: Mapping[str, Any], seed: int, vocab_size: int) -> tuple[Any, ...]:
    """Return a REQUEST for checked parameters; its edits are those from `begin` to `end`."""
    penalties = _penalties(values)
    return (
        row,
        begin,
        end,
        values["temperature"],
        values["min_p"],
        max(0, min(values["top_k"], vocab_size)),
        values["top_p"],
        *penalties,
        seed,
        values["stream"],
        values["step"],
        values["ties"] == "all",
        *(_NO_SIDES if penalties == _AT_REST else _sides(values)),
    )


def _sides(values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return which ids each penalty counts."""
    pairs = zip(_penalties(values), _AT_REST, _scope(values), strict=True)
    return tuple(0 if value == rest else SIDES[scope] for value, rest, scope in pairs)  # type: ignore[return-value]


def hot_batch(
    logits: torch.Tensor,
    rows: Sequence[int],
    values: Sequence[Any],
    seeds: Sequence[int],
    allowed: Sequence[NDArray[np.bool_] | None],
    bias: Sequence[dict[int, float]],
    history: tuple[NDArray[np.int32] | None, NDArray[np.int32] | None] = (None, None),
    mask: NDArray[np.uint32] | None = None,
) -> HotBatch:
    """Gather checked parameters and edits of rows into arrays.

    Args:
        logits: [B, V].
        rows: which rows.
        values: the checked parameters of each.
        seeds: the seed of each.
        allowed: for each, [V] booleans or None.
        bias: for each, {id: bias}.
        history: `prompt_ids` and `output_ids`.
        mask: [R, ⌈V/32⌉] words that forbid tokens besides, as in `HotBatch`.
    """
    vocab_size = logits.shape[1]
    ends = list(accumulate(len(one) for one in bias))
    edits = [edit for one in bias for edit in sorted(one.items())]
    return HotBatch(
        logits=logits,
        requests=np.array(
            [
                request(row, end - len(own), end, one, seed, vocab_size)
                for row, one, seed, own, end in zip(rows, values, seeds, bias, ends, strict=True)
            ],
            REQUEST,
        ),
        mask=_packed(allowed, vocab_size, mask),
        edit_ids=np.array([token for token, _ in edits], np.int64) if edits else _NO_IDS,
        edit_bias=np.array([one for _, one in edits], np.float64) if edits else _NO_BIAS,
        prompt_ids=history[0],
        output_ids=history[1],
    )


def _packed(
    allowed: Sequence[NDArray[np.bool_] | None], vocab_size: int, mask: NDArray[np.uint32] | None
) -> NDArray[np.uint32] | None:
    if all(one is None for one in allowed):
        return mask
    words = np.full((len(allowed), -(-vocab_size // 32)), 0xFFFFFFFF, np.uint32) if mask is None else mask.copy()
    for row, one in enumerate(allowed):
        if one is not None:
            own = np.zeros(4 * words.shape[1], np.uint8)
            bits = np.packbits(one, bitorder="little")
            own[: len(bits)] = bits
            words[row] &= own.view(np.uint32)
    return words
