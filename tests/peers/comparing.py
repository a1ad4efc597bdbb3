"""The same row through logitd and through the original, step by step: what each keeps, and with what probability."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from ambiguity import HOLDS, UNSURE
from loadtest.kernels import rows as measured
from rows_of import row_of

import logitd_kernels as K
from logitd_kernels.sampling.distribution import distribution
from logitd_kernels.sampling.order import Order

SIZES = (5, 33, 1000)
KINDS = ("normal", "flat", "peaked", "ties", "equal", "mostly_masked")


@dataclass(frozen=True)
class Row:
    """A row of logits [V] float32, and what else is known of it."""

    logits: torch.Tensor
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    mask: torch.Tensor | None = None
    guidance: torch.Tensor | None = None


@dataclass(frozen=True)
class Step:
    """A step of both chains: the name of the transform that it is here, and its parameters."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)


Found = Counter[tuple[str, str]]
Peer = Callable[[Row, Sequence[Step]], np.ndarray]  # the probabilities [V] after some steps, 0 for what is dropped


def rows() -> list[Row]:
    """Return a row of every kind and size."""
    return [Row(row_of(kind, size)) for kind in KINDS for size in SIZES]


@lru_cache
def real(index: int = 1) -> Row:
    """Return logits of the 126,052 words that may come next, by the demo's trigram model."""
    return Row(measured.pool("real", index + 1)[index].clone())


def ours(row: Row, params: dict[str, Any], order: Order) -> np.ndarray:
    """Return the probabilities [V] with which logitd would draw."""
    history = {
        name: torch.tensor([ids], dtype=torch.int64)
        for name, ids in (("prompt_ids", row.prompt), ("output_ids", row.output))
        if ids
    }
    guidance = None if row.guidance is None else row.guidance[None]
    sent = K.DenseRows(row.logits[None], row.mask, guidance_logits=guidance, **history)
    (answer,) = distribution(sent, [K.check({"seed": 1, **params})], order=order)
    assert isinstance(answer, np.ndarray), answer
    return answer


def follow(row: Row, steps: Sequence[Step], peer: Peer, order: Order, found: Found, tolerance: float) -> None:
    """Compare after each step; where the sets differ, count of what kind that is, and stop.

    Args:
        row: of both.
        steps: in the order in which they act.
        peer: the original.
        order: the dialect's, or the caller's.
        found: by (transform, kind), with "equal" for equal sets.
        tolerance: relative error of the original's probabilities and absolute error of its sums.
    Raises:
        AssertionError: the sets differ by a token of which neither ties nor rounding decide, or probabilities differ.
    """
    params: dict[str, Any] = {}
    before = ours(row, params, order)
    for count, step in enumerate(steps, 1):
        params |= step.params
        mine, other = ours(row, params, order), peer(row, steps[:count])
        if ((mine > 0) == (other > 0)).all():
            found[step.name, "equal"] += 1
            np.testing.assert_allclose(other, mine, rtol=0, atol=min(tolerance, 1e-6), err_msg=f"{steps}")
        else:
            found[step.name, kind_of(step, mine, other, before, tolerance)] += 1
            return
        before = mine


def kind_of(step: Step, mine: np.ndarray, other: np.ndarray, before: np.ndarray, tolerance: float) -> str:
    """Tell ties from rounding.

    Raises:
        AssertionError: neither decides of all tokens that one keeps and the other does not, or a set breaks the rule.
    """
    unsure = UNSURE[step.name](before, step.params, tolerance) if step.name in UNSURE else np.zeros(len(mine), bool)
    if step.name in HOLDS:
        assert all(HOLDS[step.name](before, kept > 0, step.params, tolerance) for kept in (mine, other)), step
    more, fewer = (other > 0) & ~(mine > 0), (mine > 0) & ~(other > 0)
    differing = more | fewer
    said = f"{step} on {len(mine)} logits: {fewer.sum()} tokens dropped and {more.sum()} kept beside"
    assert not (differing & ~unsure).any(), said
    equals = before == before[differing][0]
    if (before[differing] != before[differing][0]).any() or differing[equals].all():
        return "rounding"
    if more.sum() == fewer.sum():
        return "tie order"
    if step.name in ("top_p", "top_h"):
        return "rounding"  # of a sum that is the limit itself: these rules name the count
    return "ties kept" if not fewer.any() else "ties cut"
