"""Which draft tokens are accepted, and from what the next token is drawn: standard and block verification.

Notation of Sun et al. 2024, arXiv:2403.10444: P_i and Q_i are the distributions of the i-th token under target and
draft model, x_1 … x_k the draft tokens. Places count from 0 here, so that `target[i]` is P_(i+1).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from logitd_kernels.head import Floats

Uniform = Callable[[int], float]  # of the accept draw at a place, in (0, 1)


class Decision(NamedTuple):
    """What became of k draft tokens.

    Attributes:
        accepted: how many of them, counted from the first.
        acceptance: what each one's uniform is held against.
        weights: [V] unnormalised, what the next token is drawn from.
    """

    accepted: int
    acceptance: list[float]
    weights: Floats


def standard(target: Sequence[Floats], draft: Sequence[Floats], ids: Sequence[int], uniform: Uniform) -> Decision:
    """Accept draft tokens one by one up to the first rejection.

        x_i is accepted iff u_i · Q_i(x_i) < P_i(x_i), that is with probability min(1, P_i(x_i) / Q_i(x_i))
        rejected at i: the next token ~ max(P_i − Q_i, 0);  all accepted: ~ P_(k+1)

    A token with P = 0 is never accepted; one with P > 0 = Q always is, though its draft model cannot have drawn it.
    Where max(P − Q, 0) is 0 everywhere, which only rounding brings about, the next token is drawn from P.

    Args:
        target: k + 1 distributions [V].
        draft: k of them.
        ids: the k draft tokens.
        uniform: of each place.
    Source: Leviathan, Kalman and Matias 2023, arXiv:2211.17192, Alg. 1; Chen et al. 2023, arXiv:2302.01318, Alg. 2.
    """
    acceptance = [min(1.0, _ratio(p[x], q[x])) for p, q, x in zip(target, draft, ids, strict=False)]
    for place, (q, x) in enumerate(zip(draft, ids, strict=True)):
        p = target[place]
        if not uniform(place) * q[x] < p[x]:
            return Decision(place, acceptance, _or_target(np.maximum(p - q, 0.0), p))
    return Decision(len(ids), acceptance, target[len(ids)])


def block(target: Sequence[Floats], draft: Sequence[Floats], ids: Sequence[int], uniform: Uniform) -> Decision:
    """Accept the longest prefix of the draft that passes, all of it judged together; never shorter on average.

        p̄_0 = 1,  p̄_i = min(p̄_(i−1) · P_i(x_i) / Q_i(x_i), 1)
        h_i = m_i / (m_i + 1 − p̄_i),  m_i = Σ_v max(p̄_i · P_(i+1)(v) − Q_(i+1)(v), 0)  for i < k;  h_k = p̄_k
        τ = max{i : u_i ≤ h_i}, or 0;  the next token ~ max(p̄_τ · P_(τ+1) − Q_(τ+1), 0), or ~ P_(k+1) where τ = k

    `acceptance` is h. Zeros as in `standard`; h = 1 where p̄ = 1 and P = Q: whatever comes next then decides.

    Source: Sun et al. 2024, arXiv:2403.10444, Alg. 2.
    """
    reach = [1.0]  # p̄
    for p, q, x in zip(target, draft, ids, strict=False):
        reach.append(min(reach[-1] * _ratio(p[x], q[x]), 1.0) if reach[-1] else 0.0)
    excesses = [np.maximum(scale * p - q, 0.0) for scale, p, q in zip(reach, target, draft, strict=False)]
    acceptance = [_passing(float(excess.sum()), scale) for excess, scale in zip(excesses, reach, strict=False)][1:]
    acceptance += reach[len(ids) :] if ids else []
    accepted = max((place + 1 for place, least in enumerate(acceptance) if uniform(place) <= least), default=0)
    if accepted == len(ids):
        return Decision(accepted, acceptance, target[accepted])
    return Decision(accepted, acceptance, _or_target(excesses[accepted], target[accepted]))


Method = Callable[[Sequence[Floats], Sequence[Floats], Sequence[int], Uniform], Decision]
METHODS: dict[str, Method] = {"standard": standard, "block": block}


def _ratio(p: float, q: float) -> float:
    """Return p/q; without q, nothing rejects what the target can draw."""
    if q == 0:
        return np.inf if p > 0 else 0.0
    return float(p) / float(q)


def _passing(excess: float, reach: float) -> float:
    left = excess + (1.0 - reach)
    return excess / left if left > 0 else 1.0


def _or_target(excess: Floats, target: Floats) -> Floats:
    return excess if excess.any() else target
