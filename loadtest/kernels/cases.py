"""What is asked of a row, and the work of one measurement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.transform import Cut, Transform


@dataclass(frozen=True)
class Case:
    """One way to sample a row, or its whole softmax.

    Attributes:
        name: as in the table and in `--only`.
        params: sampling parameters, as in a request.
        softmax: write out softmax(x/T) instead of drawing.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    softmax: bool = False

    def get(self, name: str, neutral: float) -> float:
        """Return a parameter, or its neutral value."""
        return float(self.params.get(name, neutral))

    @property
    def temperature(self) -> float:
        """The temperature, 0 for greedy."""
        return self.get("temperature", 1.0)


NAMED = (
    Case("greedy", {"temperature": 0}),
    Case("temperature", {"temperature": 0.8}),
    Case("top_k", {"temperature": 0.8, "top_k": 50}),
    Case("top_p", {"temperature": 0.8, "top_p": 0.9}),
    Case("top_k+top_p+min_p", {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.05}),
    Case("untruncated", {}),
    Case("softmax", {"temperature": 0.8}, softmax=True),
)


def all_cases(transforms: tuple[Transform, ...] = TRANSFORMS) -> tuple[Case, ...]:
    """Return the named cases, and one for every truncation of the registry that none of them uses."""
    used = {name for case in NAMED for name in case.params}
    new = [cut for cut in transforms if isinstance(cut, Cut) and cut.name not in used]
    return NAMED + tuple(Case(cut.name, {"temperature": 0.8, cut.name: _middle(cut.parameter)}) for cut in new)


def _middle(parameter: Any) -> float:  # noqa: ANN401  (Number, or one like it)
    """Return a value half way from neutral to the other bound, or neutral + 1 where there is none."""
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

    @property
    def batch(self) -> int:
        """B, how many rows a call has."""
        return self.blocks[0].shape[0]

    @property
    def row_bytes(self) -> int:
        """The bytes that must move for one row: its logits in, and its softmax (float32) out where that is asked."""
        vocab = self.blocks[0].shape[1]
        return vocab * self.blocks[0].element_size() + (4 * vocab if self.case.softmax else 0)
