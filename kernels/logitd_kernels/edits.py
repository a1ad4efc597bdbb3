"""What is done to single logits of one row before any truncation: tokens forbidden, logits moved.

Edit transforms write into `Edits`; it is applied to a dense row or to a head. Sums are float64, and a row
with one becomes float64, so that dense and head form, whatever their dtype, see the same processed logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.errors import BadRow, ParameterError, told
from logitd_kernels.head import Floats, Ids

LEFT_NOTHING = "the mask, bias and bans leave no token"

_FEW = 64  # forbidden ids that are cheaper one by one than as a mask
_NO_BIAS: dict[int, float] = {}


@dataclass(frozen=True)
class Sum:
    """x ← x + bias; −inf forbids."""

    bias: dict[int, float]

    @cached_property
    def ids(self) -> Ids:
        """The token ids, [N] ascending."""
        return np.array(sorted(self.bias), np.int64)

    @property
    def forbids_only(self) -> bool:
        """Whether no logit is moved."""
        return all(bias == -np.inf for bias in self.bias.values())

    @property
    def raises(self) -> bool:
        """Whether some logit may end higher than it was."""
        return any(bias > 0 for bias in self.bias.values())

    def apply(self, ids: Ids, logits: Floats) -> Floats:
        """Return the logits [N] of token ids [N] after this step."""
        added: Floats = logits + np.array([self.bias.get(int(token), 0.0) for token in ids])
        return added


@dataclass(frozen=True)
class Penalty:
    """x ← x/factor where x > 0, else x·factor; factor > 0. Keskar et al. 2019, arXiv:1909.05858, §4.1."""

    ids: Ids  # [N] ascending
    factor: float
    forbids_only = False

    @property
    def raises(self) -> bool:
        """Whether some logit may end higher than it was."""
        return self.factor < 1

    def apply(self, ids: Ids, logits: Floats) -> Floats:
        """Return the logits [N] of token ids [N] after this step."""
        penalised = np.where(logits > 0, logits / self.factor, logits * self.factor)
        return np.where(np.isin(ids, self.ids), penalised, logits)


@dataclass
class Edits:
    """Steps on single logits of one row, in order, and the tokens that a mask allows."""

    vocab_size: int
    allowed: NDArray[np.bool_] | None = None  # [V], None allows all
    steps: list[Sum | Penalty] = field(default_factory=list)

    @property
    def bias(self) -> dict[int, float]:
        """What is added, where that is all there is."""
        steps = [step for step in self.steps if isinstance(step, Sum)]
        assert len(steps) == len(self.steps) <= 1
        return steps[0].bias if steps else _NO_BIAS

    @property
    def moves(self) -> bool:
        """Whether a logit is moved, rather than forbidden."""
        return not all(step.forbids_only for step in self.steps)

    @property
    def touched(self) -> Ids:
        """The token ids of all steps, ascending."""
        return np.unique(np.concatenate([step.ids for step in self.steps])) if self.steps else np.empty(0, np.int64)

    def check_ids(self, name: str, ids: Sequence[int]) -> None:
        """Refuse ids outside the vocabulary, naming the parameter."""
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            token = next(token for token in ids if not 0 <= token < self.vocab_size)
            raise ParameterError(name, f"token id {told(token)} is outside the vocabulary [0, {self.vocab_size})")

    def allow_only(self, allowed: NDArray[np.bool_]) -> None:
        """Forbid every token outside `allowed` [V]."""
        self.allowed = allowed if self.allowed is None else self.allowed & allowed

    def forbid(self, ids: Sequence[int]) -> None:
        """Forbid single tokens; many of them as a mask."""
        if len(ids) <= _FEW:
            self.add(dict.fromkeys(ids, -np.inf))
            return
        allowed = np.ones(self.vocab_size, np.bool_)
        allowed[list(ids)] = False
        self.allow_only(allowed)

    def add(self, bias: dict[int, float]) -> None:
        """Add to single logits; −inf forbids. Sums that follow one another are added up first."""
        if not bias:
            return
        last = self.steps.pop() if self.steps and isinstance(self.steps[-1], Sum) else Sum({})
        assert isinstance(last, Sum)
        self.steps.append(Sum({**last.bias, **{token: last.bias.get(token, 0.0) + one for token, one in bias.items()}}))

    def penalise(self, ids: Ids, factor: float) -> None:
        """Divide the positive and multiply the other logits of distinct, ascending ids."""
        if len(ids):
            self.steps.append(Penalty(ids, factor))

    def apply(self, row: torch.Tensor) -> torch.Tensor:
        """Return an edited row, [V] float32 or float64; `row` itself may be written to.

        Raises:
            BadRow: nothing is left (`all_masked`), or a sum is beyond float64 (`non_finite`).
        """
        if self.moves:
            row = row.double()
        logits = row.numpy()
        if self.steps:
            ids = self.touched
            logits[ids] = self.edited(ids, logits[ids])
        if self.allowed is not None:
            logits[~self.allowed] = -np.inf
        if (self.steps or self.allowed is not None) and not (logits > -np.inf).any():
            raise BadRow.all_masked(LEFT_NOTHING)
        return row

    def edited(self, ids: Ids, logits: Floats) -> Floats:
        """Return logits [N] of token ids [N] after all steps, forbidden tokens at −inf.

        Raises:
            BadRow: a logit beyond float64 (`non_finite`).
        """
        with np.errstate(over="ignore"):
            for step in self.steps:
                logits = step.apply(ids, logits)
        if self.steps and (logits == np.inf).any():
            raise BadRow.non_finite(int(ids[np.argmax(logits)]), np.inf, "posinf")
        return logits if self.allowed is None else np.where(self.allowed[ids], logits, -np.inf)
