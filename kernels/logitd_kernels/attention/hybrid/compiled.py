"""Hybrid attention in compiled loops, for float32: what `far`, `tile` and `fit` say in torch."""

from typing import Any

import torch

from logitd_kernels.attention.hybrid.head import BLOCK, Head
from logitd_kernels.attention.hybrid.states import States
from logitd_kernels.attention.moment.compiled import maps
from logitd_kernels.attention.moment.read import Coefficients
from logitd_kernels.native import module


class Compiled:
    """A head for the compiled loops, and what they do with it."""

    def __init__(self, head: Head, before: States, behind: States | None) -> None:
        window = head.window
        heavy = head.by_key(head.keys)[head.heavy], head.by_key(head.values)[head.heavy], head.heavy
        behind_parts = (None, None) if behind is None else (behind.sums, behind.log_scale)
        states = before.sums, before.log_scale, *behind_parts
        blocks = head.start, window.blocks, window.causal, head.first
        self._head = head
        self._native: Any = module.HybridHead(
            head.keys, head.values, head.hidden, *maps(head.basis), *heavy, *blocks, *states
        )

    def sum_blocks(self) -> None:
        """Fill the states: see `far.sum_blocks`."""
        self._native.sum()

    def attend(self, coefficients: Coefficients) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend with every block of queries: [T, 64, dv] in scratch memory, and bad ones, [T, 64] bool."""
        head = self._head
        output = head.scratch.take("output", head.stop - head.first, BLOCK, head.v.shape[1])
        bad = torch.empty(output.shape[:2], dtype=torch.bool)
        self._native.attend(head.queries, coefficients, output, bad)
        return output, bad

    def orders(self, q: torch.Tensor, blocks: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take queries apart, in units of e^total: what their exact keys add up to, and each order of the far ones.

        Args:
            q: [R, d], times the scale.
            blocks: [R] int64, theirs among the head's.
            total: [R], logs of their normalisers over centred keys.
        Returns:
            [R, dv + 1] and [3, R, dv + 1].
        """
        columns = self._head.v.shape[1] + 1
        exact, far = q.new_empty(len(q), columns), q.new_empty(3, len(q), columns)
        self._native.orders(q, blocks, total.contiguous(), exact, far)
        return exact, far
