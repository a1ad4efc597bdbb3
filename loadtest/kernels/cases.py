"""What is asked of a row, and the work of one measurement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from loadtest.kernels import rows

from logitd_kernels import check
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.transform import Transform

# What a case is made for without being listed; an edit takes more than a number. Older commits lack some of these.
_MEASURED = ("Cut", "Band", "Remap", "Scale", "Reweigh")


@dataclass(frozen=True)
class Case:
    """One way to sample a row, or its whole softmax.

    Attributes:
        name: as in the table and in `--only`.
        params: sampling parameters, as in a request.
        softmax: write out softmax(x/T) instead of drawing.
        history: every row comes with a prompt and an output of 2,048 ids each.
        mask: every row comes with a packed bitmask that allows half of the vocabulary.
        biased: how many ids get a bias, spread over the vocabulary.
        over: the case that it adds something to, "" for none.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    softmax: bool = False
    history: bool = False
    mask: bool = False
    biased: int = 0
    over: str = ""

    def get(self, name: str, neutral: float) -> float:
        """Return a parameter, or its neutral value."""
        return float(self.params.get(name, neutral))

    @property
    def temperature(self) -> float:
        """The temperature, 0 for greedy."""
        return self.get("temperature", 1.0)


PENALTIES = {
    "repetition_penalty": 1.2,
    "frequency_penalty": 0.1,
    "frequency_scope": "both",
    "presence_penalty": 0.1,
    "presence_scope": "both",
}
_WARM = {"temperature": 0.8}
_SHORT = {**_WARM, "top_k": 50}  # an edit that flattens a row makes no other work of it
NAMED = (
    Case("greedy", {"temperature": 0}),
    Case("temperature", _WARM),
    Case("top_k", _SHORT),
    Case("top_p", {"temperature": 0.8, "top_p": 0.9}),
    Case("top_k+top_p+min_p", {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.05}),
    Case("untruncated", {}),
    Case("softmax", {"temperature": 0.8}, softmax=True),
    Case("penalties", {**_SHORT, **PENALTIES}, history=True, over="top_k"),
    Case("dry", {**_SHORT, "dry_multiplier": 0.8}, history=True, over="top_k"),
    Case("no_repeat_ngram", {**_SHORT, "no_repeat_ngram_size": 3}, history=True, over="top_k"),
    Case("mask", _SHORT, mask=True, over="top_k"),
    Case("logit_bias", _SHORT, biased=500, over="top_k"),
)


def all_cases(transforms: tuple[Transform, ...] = TRANSFORMS) -> tuple[Case, ...]:
    """Return the named cases, and one for every step after the edits of the registry that none of them uses."""
    used = {name for case in NAMED for name in case.params}
    steps = [one for one in transforms if type(one).__name__ in _MEASURED and one.parameter is not None]
    new = {one.name: one.parameter for one in steps if one.parameter.name not in used}
    return NAMED + tuple(
        Case(name, {**_WARM, parameter.name: _middle(parameter)}, over="temperature") for name, parameter in new.items()
    )


def _middle(parameter: Any) -> float:  # noqa: ANN401  (Number, or one like it)
    """Return a value half way from neutral to the other bound, or neutral + 1 where there is none.

    A parameter that is null where it is off has its middle half way between its bounds.
    """
    parameter = getattr(parameter, "number", parameter)
    low = parameter.ge if parameter.ge is not None else parameter.gt
    high = parameter.le
    other = low if parameter.neutral == high else high
    value = parameter.neutral + 1 if other is None else (parameter.neutral + other) / 2
    return int(value) if parameter.integer else value


@dataclass(frozen=True)
class Work:
    """What the contenders of one measurement are given.

    Attributes:
        kind: of rows.
        case: what to do with them.
        blocks: each [B, V]: the rows of one call. Calls cycle through the blocks.
        threads: how many a contender may use.
    """

    kind: str
    case: Case
    blocks: tuple[torch.Tensor, ...]
    threads: int = 1

    @classmethod
    def of(cls, kind: str, case: Case, pool: torch.Tensor, batch: int = 1, threads: int = 1) -> "Work":
        """Cut a pool of rows [N, V] into blocks; a rest of fewer than B rows is left out."""
        blocks = tuple(pool[start : start + batch] for start in range(0, len(pool) - batch + 1, batch))
        return cls(kind, case, blocks, threads)

    def beside(self, place: int) -> dict[str, torch.Tensor]:
        """Return the tensors that come with the logits of a block, by their names in `DenseRows`."""
        block = self.blocks[place]
        found: dict[str, torch.Tensor] = {}
        if self.case.history:
            found["prompt_ids"], found["output_ids"] = rows.history(block)
        if self.case.mask:
            found["mask"] = rows.half_allowed(block)
        return found

    def values(self, place: int) -> list[Any]:
        """Return the checked parameters of a block's rows, each with a draw of its own."""
        params = dict(self.case.params)
        if self.case.biased:
            step = max(self.blocks[0].shape[1] // self.case.biased, 1)
            params["logit_bias"] = {step * index: -0.5 for index in range(self.case.biased)}
        return [check({**params, "seed": 1, "step": place * self.batch + row}) for row in range(self.batch)]

    @property
    def batch(self) -> int:
        """B, how many rows a call has."""
        return self.blocks[0].shape[0]

    @property
    def row_bytes(self) -> int:
        """The bytes that must move for one row: its logits in, and its softmax (float32) out where that is asked."""
        vocab = self.blocks[0].shape[1]
        return vocab * self.blocks[0].element_size() + (4 * vocab if self.case.softmax else 0)
