"""Blocks of queries: scores with their windows and the heavy keys, and the far keys' state, on a common scale."""

import torch

from logitd_kernels.attention.hybrid.far import TILE, Far
from logitd_kernels.attention.hybrid.head import BLOCK, Head
from logitd_kernels.attention.hybrid.states import States
from logitd_kernels.attention.moment.read import Coefficients, Expansion, quotient
from logitd_kernels.attention.moment.state import size_of


def attend(head: Head, far: Far, coefficients: Coefficients) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with every query of a head.

        out = (Σ_E e^(s − λ) v + e^(log_mass − λ) num_far) / (Σ_E e^(s − λ) + e^(log_mass − λ) den_far)

    E are the heavy keys and those of the query's window; λ is the largest exponent of a query.

    Args:
        head: at least one query, one key and one heavy key.
        far: the head's far keys.
        coefficients: of the three orders of the far keys' polynomial.
    Returns:
        The output [R, dv] in scratch memory, and which queries have no positive normaliser, [R] bool: theirs is 0.
    """
    output, bad = far.compiled.attend(coefficients) if far.compiled else _attend(head, far, coefficients)
    start = head.offset - head.first * BLOCK
    return output.flatten(0, 1)[start : start + len(head.q)], bad.flatten()[start : start + len(head.q)]


def _attend(head: Head, far: Far, coefficients: Coefficients) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with every block of queries: [T, 64, dv] and bad ones, [T, 64] bool."""
    output = head.scratch.take("output", far.blocks, BLOCK, head.v.shape[1])
    bad = torch.empty(far.blocks, BLOCK, dtype=torch.bool)
    for start in range(0, far.blocks, TILE):
        tile = slice(start, min(start + TILE, far.blocks))
        states = far.of(torch.arange(tile.start, tile.stop))
        bad[tile] = _tile(head, tile, states, coefficients, output[tile])
    return output, bad


def _tile(head: Head, blocks: slice, far: States, coefficients: Coefficients, out: torch.Tensor) -> torch.Tensor:
    """Attend with some blocks of queries, counted from the head's first, into out [T, 64, dv]; bad ones: [T, 64]."""
    q = head.queries[blocks]
    near, heavy = _near_scores(head, q, blocks), _heavy_scores(head, q, blocks)
    reading = expansion(head, q, far).reading(coefficients)
    scale = torch.maximum(torch.maximum(near.amax(2), heavy.amax(2)), reading.log_mass)
    scale = scale.clamp(min=torch.finfo(scale.dtype).min)[..., None]  # where nothing is seen at all
    sums = torch.bmm(near.sub_(scale).exp_(), head.windows(head.values)[blocks])
    sums.view(-1, sums.shape[2]).addmm_(heavy.sub_(scale).exp_().flatten(0, 1), head.by_key(head.values)[head.heavy])
    weight = torch.exp(reading.log_mass - scale[..., 0])
    numerator = torch.addcmul(sums[..., :-1], reading.numerator, weight[..., None])
    return quotient(numerator, torch.addcmul(sums[..., -1], reading.denominator, weight), out)


def _near_scores(head: Head, q: torch.Tensor, blocks: slice) -> torch.Tensor:
    """Score the keys of each block's window, −inf for padding, heavy and future keys: [T, n, w · 64]."""
    scores = torch.baddbmm(head.windows(head.hidden)[blocks][:, None], q, head.windows(head.keys)[blocks].mT)
    if head.window.causal:
        scores[:, :, -BLOCK:].masked_fill_(torch.ones(BLOCK, BLOCK, dtype=torch.bool).triu(1), -torch.inf)
    return scores


def _heavy_scores(head: Head, q: torch.Tensor, blocks: slice) -> torch.Tensor:
    """Score the heavy keys, −inf for future ones: [T, n, S]."""
    scores = (q.flatten(0, 1) @ head.by_key(head.keys)[head.heavy].T).view(len(q), BLOCK, -1)
    if head.window.causal:
        block = torch.arange(head.first, head.stop)[blocks]
        positions = block[:, None, None] * BLOCK + torch.arange(BLOCK)[:, None]
        scores.masked_fill_(head.heavy > positions, -torch.inf)
    return scores


def expansion(head: Head, q: torch.Tensor, far: States) -> Expansion:
    """Expand far states [T] along queries [T, n, d]."""
    basis = head.basis
    x = q - basis.query_centre
    y = torch.bmm(basis.query_map.expand(len(q), -1, -1), x.mT)
    sums = far.sums.view(len(q), size_of(basis), head.values.shape[2])
    return Expansion(sums, far.log_scale, basis.key_map.expand(len(q), -1, -1), x, y)
