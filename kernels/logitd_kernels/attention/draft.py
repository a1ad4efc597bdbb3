"""A call computed by the modes of its heads, not yet judged."""

from dataclasses import dataclass

import torch

from logitd_kernels.attention.bf16 import exact_bf16
from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.choice import Choice
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.methods import APPROXIMATE


@dataclass
class Draft:
    """An answer before it is judged.

    Attributes:
        output: [B, Hq, Lq, dv].
        refused: [B, Hq] int64, queries whose normaliser failed.
        state_bytes: of each head, None for exact ones.
        cost: multiply-adds over those of exact attention, the mean of the heads.
    """

    output: torch.Tensor
    refused: torch.Tensor
    state_bytes: list[int | None]
    cost: float


def draft(call: Call, choices: list[Choice], options: Options) -> Draft:
    """Attend with each mode once, for the heads that have it."""
    modes = [choice.mode for choice in choices]
    if len(set(modes)) == 1:
        return _computed(call, modes[0], options)
    whole = Draft(
        call.v.new_empty(*call.q.shape[:3], call.v.shape[3]), call.lengths().new_zeros(call.q.shape[:2]), [], 0
    )
    whole.state_bytes = [None] * call.heads
    for mode in dict.fromkeys(modes):
        heads = torch.tensor([head for head, own in enumerate(modes) if own == mode])
        part = _computed(call.select(heads), mode, options)
        whole.output[:, heads], whole.refused[:, heads] = part.output, part.refused
        whole.cost += part.cost * len(heads) / call.heads
        for head, own in zip(heads.tolist(), part.state_bytes, strict=True):
            whole.state_bytes[head] = own
    return whole


def _computed(call: Call, mode: str, options: Options) -> Draft:
    exactly = {"exact": lambda call: exact(call, statistics=False), "exact_bf16": exact_bf16}.get(mode)
    if exactly:
        none = torch.zeros(call.batch, call.heads, dtype=torch.int64)
        return Draft(exactly(call).output, none, [None] * call.heads, 1.0)
    found = APPROXIMATE[mode](call, options)
    return Draft(found.output, found.nonpositive_rows, [found.state_bytes] * call.heads, found.cost)
