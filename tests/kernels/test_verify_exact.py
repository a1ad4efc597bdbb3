"""Lossless by arithmetic: everything that can become of every draft, summed up, is the target's own distribution."""

import itertools
import math

import numpy as np
import pytest

from logitd_kernels.sampling.acceptance import METHODS

every_method = pytest.mark.parametrize("method", METHODS)


def _sequences(target, draft, ids, method):
    """Yield (probability, accepted, weights) of everything that can become of a draft."""
    for accepted in range(len(ids) + 1):
        decision = METHODS[method](
            target, draft, ids, lambda place, end=accepted: 1e-300 if place < end else 1 - 2**-53
        )
        held = decision.acceptance
        if method == "standard":
            chance = math.prod(held[:accepted]) * (1 - held[accepted] if accepted < len(ids) else 1)
        else:
            decision = METHODS[method](
                target, draft, ids, lambda place, end=accepted: 1e-300 if place == end - 1 else 1 - 2**-53
            )
            chance = (held[accepted - 1] if accepted else 1) * math.prod(1 - h for h in held[accepted:])
        if chance > 0:
            assert decision.accepted == accepted
            yield chance, accepted, decision.weights / decision.weights.sum()


def _chain(rng, vocab_size):
    """Return a first-order chain [V + 1, V], its last row the start; some of it 0."""
    rows = rng.dirichlet(np.full(vocab_size, 0.6), vocab_size + 1) * (rng.random((vocab_size + 1, vocab_size)) < 0.8)
    rows[:, 0] += 0.05
    return rows / rows.sum(1, keepdims=True)


def _target_of(chain, length):
    """Return the probability of every sequence."""
    found = {}
    for sequence in itertools.product(range(chain.shape[1]), repeat=length):
        states = (chain.shape[1], *sequence)
        found[sequence] = math.prod(chain[a, b] for a, b in itertools.pairwise(states))
    return found


@every_method
@pytest.mark.parametrize("drawn", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_what_comes_out_is_the_target_exactly(seed, drawn, method):
    """Every draft of three tokens, everything that can become of it, and the target's own way on: summed up."""
    rng = np.random.default_rng(seed)
    size, length = 3, 3
    target_chain, draft_chain = _chain(rng, size), _chain(rng, size)
    found = dict.fromkeys(itertools.product(range(size), repeat=length + 1), 0.0)
    drafts = _target_of(draft_chain, length) if drawn else {(0, 2, 1): 0.5, (1, 1, 0): 0.5}
    for ids, share in drafts.items():
        states = [size, *ids]
        draft = draft_chain[states[:-1]] if drawn else np.eye(size)[list(ids)]
        for chance, accepted, weights in _sequences(target_chain[states], draft, ids, method) if share else ():
            for sequence in found:
                if sequence[:accepted] == ids[:accepted]:
                    rest = itertools.pairwise(sequence[accepted:])
                    found[sequence] += (
                        share * chance * weights[sequence[accepted]] * math.prod(target_chain[a, b] for a, b in rest)
                    )
    assert found == pytest.approx(_target_of(target_chain, length + 1), abs=1e-12)


def test_block_verification_accepts_no_fewer():
    rng = np.random.default_rng(3)
    for _ in range(10):
        target, draft = rng.dirichlet(np.ones(3), 4), rng.dirichlet(np.ones(3), 3)
        means = dict.fromkeys(METHODS, 0.0)
        for ids in itertools.product(range(3), repeat=3):
            share = math.prod(draft[place, x] for place, x in enumerate(ids))
            for method in METHODS:
                means[method] += share * sum(c * a for c, a, _ in _sequences(target, draft, ids, method))
        assert means["block"] >= means["standard"] - 1e-12
