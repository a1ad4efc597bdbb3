"""Verified sequences by the thousand: distributed as the target's own, and accepted as often as the theory says."""

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from verifying import each_seed, logits_of

from logitd_kernels import DenseRows
from logitd_kernels.sampling import verify as module
from logitd_kernels.sampling.acceptance import METHODS
from logitd_kernels.sampling.speculation import Speculation

SIZE, DRAFTS = 3, 2
ALPHA = 1e-6
START = SIZE
every_method = pytest.mark.parametrize("method", METHODS)

# Where each chain goes from each token, and from the start: far enough apart that a third of the drafts is rejected.
TARGET = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.45, 0.5, 0.05], [0.5, 0.3, 0.2]])
DRAFT = np.array([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2], [0.2, 0.3, 0.5]])


@pytest.fixture
def remembered(monkeypatch):
    """Let equal rows be weighed once: here are four of them."""
    weigh, base = module.distribution, each_seed(1)
    known = lru_cache(lambda row: weigh(DenseRows(torch.tensor([row], dtype=torch.float64)), base)[0])
    monkeypatch.setattr(module, "distribution", lambda rows, *_: [known(tuple(row)) for row in rows.logits.tolist()])


@pytest.mark.parametrize("drawn", [True, False])
@every_method
def test_verified_sequences_are_the_target_s(remembered, method, drawn):
    check(20_000 if drawn else 5_000, method, drawn)


@pytest.mark.long
@every_method
def test_a_tenfold_of_verified_sequences_are_the_target_s(method):
    check(200_000, method, drawn=True)


def check(count, method, drawn):
    rng = np.random.default_rng(11)
    ids = drafts(rng, count) if drawn else np.tile([2, 1], (count, 1))
    states = np.column_stack([np.full(count, START), ids])
    probs = torch.from_numpy(DRAFT[states[:, :-1]]) if drawn else None
    rows = Speculation(logits_of(TARGET)[states], torch.from_numpy(ids), probs)
    answers = module.verify(rows, each_seed(count), method=method)
    tokens, accepted = np.array([a.tokens for a in answers]), np.array([a.accepted for a in answers])
    for place in range(1, DRAFTS + 1):  # the target goes on by itself
        missing = tokens[:, place] < 0
        tokens[missing, place] = step(rng, TARGET, tokens[missing, place - 1])
    assert p_value(tokens, count) > ALPHA
    expected, squares = expectation(method, drawn)
    deviation = math.sqrt((squares - expected**2) / count)
    assert abs(accepted.mean() - expected) < 4 * deviation
    if drawn and method == "standard":
        rate = np.minimum(TARGET[START], DRAFT[START]).sum()
        assert abs((accepted > 0).mean() - rate) < 4 * math.sqrt(rate * (1 - rate) / count)


def step(rng, chain, states):
    return (rng.random((len(states), 1)) > np.cumsum(chain[states], 1)[:, :-1]).sum(1)


def drafts(rng, count):
    states = [np.full(count, START)]
    for _ in range(DRAFTS):
        states.append(step(rng, DRAFT, states[-1]))
    return np.column_stack(states[1:])


def p_value(tokens, count):
    """Return how likely a χ² as large is; bins below 5 are one."""
    sequences = list(itertools.product(range(SIZE), repeat=DRAFTS + 1))
    expected = count * np.array([chance(TARGET, sequence) for sequence in sequences])
    places = tokens @ (SIZE ** np.arange(DRAFTS, -1, -1))
    seen = np.bincount(places, minlength=len(sequences)).astype(float)
    rare = expected < 5
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        seen = np.append(seen[~rare], seen[rare].sum())
    return chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1)


def chance(chain, sequence):
    return math.prod(chain[a, b] for a, b in itertools.pairwise((START, *sequence)))


def expectation(method, drawn):
    """Return E[accepted] and E[accepted²].

    P(accepted ≥ i | x_1 … x_i) is Π_j min(1, p(x_j)/q(x_j)) for `standard`, and p̄_i for `block`.
    """
    first = second = 0.0
    for place in range(1, DRAFTS + 1):
        for ids in itertools.product(range(SIZE), repeat=place):
            share = chance(DRAFT, ids) if drawn else float(ids == (2, 1)[:place])
            reach = 1.0
            for a, b in itertools.pairwise((START, *ids)):
                ratio = TARGET[a, b] / (DRAFT[a, b] if drawn else 1.0)
                reach = min(reach * ratio, 1.0) if method == "block" else reach * min(ratio, 1.0)
            first += share * reach
            second += share * reach * (2 * place - 1)
    return first, second
