"""Softmax over keys that come in blocks, in memory that does not grow with them."""

import math

import torch

from logitd_kernels.attention.call import Attended, Call
from logitd_kernels.attention.parts import Shown


class Online:
    """The running softmax of rows of scores: m = max s, ℓ = Σ e^(s−m), t = Σ e^(s−m)(s−m), o = Σ e^(s−m) v.

    A block with maximum m⁺ rescales what was summed by α = e^(m−m⁺); t becomes α(t + (m−m⁺)ℓ) first. At the end the
    output is o/ℓ, LSE = m + log ℓ, the entropy log ℓ − t/ℓ and the largest weight 1/ℓ.

    `floor` is the least s − m: e^floor is the smallest normal number. Below it, exp takes a hundred times as long, and
    every product with what it gives; a weight of 1e-38 in place of less changes nothing.

    Source: Milakov and Gimelshein 2018, arXiv:1805.02867, Alg. 3 (m, ℓ); Dao et al. 2022, arXiv:2205.14135, Alg. 1 (o).
    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: torch.dtype, entropy: bool) -> None:
        """Start with no key seen. `shape` is that of the output: [heads, group, R, dv]."""
        rows = (*shape[:3], 1)
        self.floor = math.ceil(math.log(torch.finfo(dtype).tiny))
        self._max = torch.full(rows, torch.finfo(dtype).min, dtype=dtype)  # finite: −inf − −inf is NaN
        self._sum = torch.zeros(rows, dtype=dtype)
        self._energy = torch.zeros(rows, dtype=dtype) if entropy else None
        self._values = torch.zeros(shape, dtype=dtype)

    def add(self, scores: torch.Tensor, values: torch.Tensor, shown: Shown | None) -> None:
        """Take one block of keys.

        Args:
            scores: [heads, group, R, C], contiguous, finite; overwritten.
            values: [heads, C, dv], finite.
            shown: which keys are seen; None for all.
        """
        if shown is not None:
            scores += shown.bias
        largest = torch.maximum(self._max, scores.amax(-1, keepdim=True))
        shift = (self._max - largest).clamp_(min=self.floor)
        decay = shift.exp()
        scores.sub_(largest).clamp_(min=self.floor)
        weights = scores.exp_() if self._energy is None else scores.exp()
        if shown is not None:
            weights *= shown.weight
        if self._energy is not None:
            energy = scores.mul_(weights).sum(-1, keepdim=True)
            self._energy.add_(shift.mul_(self._sum)).mul_(decay).add_(energy)
        self._sum.mul_(decay).add_(weights.sum(-1, keepdim=True))
        self._values.mul_(decay).flatten(1, 2).baddbmm_(weights.flatten(1, 2), values)
        self._max = largest

    def finish(self) -> Attended:
        """Return output [heads, group, R, dv], and LSE, entropy and the largest weight [heads, group, R]."""
        none = self._sum == 0  # else the largest score has weight 1
        total = self._sum.masked_fill(none, 1)
        log_sum = total.log()
        output, lse = self._values / total, (self._max + log_sum).masked_fill_(none, -torch.inf)[..., 0]
        if self._energy is None:
            return Attended(output, lse)
        entropy = (log_sum - self._energy / total).clamp_(min=0)
        return Attended(output, lse, entropy[..., 0], (1 / total).masked_fill_(none, 0)[..., 0])


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of scores and sums for input of some dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def blank(call: Call, dtype: torch.dtype, statistics: bool) -> Attended:
    """Return the answer of queries that see no key, for a whole call, to be written into."""
    rows = (call.batch, call.heads, call.queries)
    return Attended(
        output=torch.zeros(*rows, call.v.shape[3], dtype=dtype),
        lse=torch.full(rows, -torch.inf, dtype=dtype),
        entropy=torch.zeros(rows, dtype=dtype) if statistics else None,
        max_prob=torch.zeros(rows, dtype=dtype) if statistics else None,
    )


def with_sinks(attended: Attended, sink_logits: torch.Tensor) -> Attended:
    """Give each head's sink its share of the weights.

        share = Σ e^s / (Σ e^s + e^sink),  w ← share · w,  −Σ w log w ← share · H − share · log share

    Args:
        attended: of a whole call, without sinks.
        sink_logits: [Hq].
    """
    lse, sinks = attended.lse, sink_logits.to(attended.lse.dtype)[None, :, None]
    share = torch.sigmoid(lse - sinks).masked_fill(lse == -torch.inf, 0)
    entropy, max_prob = attended.entropy, attended.max_prob
    return Attended(
        output=attended.output * share[..., None],
        lse=lse,
        entropy=None if entropy is None else entropy * share + torch.special.entr(share),
        max_prob=None if max_prob is None else max_prob * share,
    )
