"""Speculative verification: worked numbers, greedy tables, laws, replay, batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows_of import BACKENDS, law
from verifying import BASE, P, Q, each_seed, logits_of, one, replayed, speculation

import logitd_kernels as K
from logitd_kernels.sampling.acceptance import METHODS
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.verify import verify

SEEDS = 40
every_method = pytest.mark.parametrize("method", METHODS)


# ---- Worked numbers ----


@every_method
@pytest.mark.parametrize(
    ("p", "q", "acceptance", "residual"),
    [
        (P, Q, [1, 1 / 3, 1 / 3], [1, 0, 0]),
        ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [1, 1, 0.4], [1, 0, 0]),
        ([0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [1 / 3, 1, 1], [0, 0.5, 0.5]),
    ],
)
def test_one_token_is_accepted_as_worked_out(p, q, acceptance, residual, method):
    for x, expected in enumerate(acceptance):
        assert one([p, p], [x], [q], method).acceptance == pytest.approx([expected], abs=1e-12)
    total = sum(share * accepted for share, accepted in zip(q, acceptance, strict=True))
    assert total == pytest.approx(sum(map(min, p, q)))
    [x] = [x for x, accepted in enumerate(acceptance) if accepted < 0.5][:1]
    rejected = METHODS[method](np.array([p, p]), np.array([q]), [x], lambda place: 0.999)
    assert rejected.accepted == 0
    assert rejected.weights / rejected.weights.sum() == pytest.approx(residual, abs=1e-12)


@every_method
def test_a_draft_that_was_not_drawn_is_accepted_by_its_probability(method):
    assert one([P, P], [1], method=method).acceptance == pytest.approx([0.2])
    rejected = METHODS[method](np.array([P, P]), np.array([[0, 1, 0]]), [1], lambda place: 0.999)
    assert rejected.weights / rejected.weights.sum() == pytest.approx([0.875, 0, 0.125])


@every_method
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("best", "ids", "tokens"),
    [
        ([2, 0, 1, 2], [2, 0, 1], [2, 0, 1, 2]),  # all accepted, and one more
        ([2, 0, 1, 2], [2, 1, 1], [2, 0, -1, -1]),
        ([2, 0, 1, 2], [0, 0, 1], [2, -1, -1, -1]),
        ([2, 0, 1, 2], [2, 0, -1], [2, 0, 1, -1]),
        ([2, 0, 1, 2], [-1, 0, 1], [2, -1, -1, -1]),
        ([2, 0, 1, 2], [2, -1, 1], [2, 0, -1, -1]),
        ([1], [], [1]),
    ],
)
@pytest.mark.parametrize("with_probs", [False, True])
def test_greedy_accepts_the_argmax(best, ids, tokens, with_probs, backend, method):
    target = np.where(np.arange(3) == np.array(best)[:, None], 0.4, 0.3)
    probs = np.full((len(ids), 3), 1 / 3) if with_probs else None
    for seed in range(5):
        answer = one(target, ids, probs, method, BACKENDS[backend], temperature=0, seed=seed)
        assert answer.tokens == tokens
        assert answer.accepted == sum(token >= 0 for token in tokens) - 1
        fits = [float(x == b) for x, b in zip(ids, best, strict=False)][: len(answer.acceptance)]
        assert answer.acceptance == (fits if method == "standard" else np.cumprod(fits).tolist())


@every_method
def test_greedy_breaks_ties_by_the_lowest_id(method):
    even = [0.4, 0.4, 0.2]
    assert one([even, even], [0], method=method, temperature=0).tokens == [0, 0]
    assert one([even, even], [1], method=method, temperature=0).tokens == [0, -1]


# ---- Laws ----


@every_method
def test_where_both_agree_everything_is_accepted(method):
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(SEEDS, 5, 7)))
    ids = torch.from_numpy(rng.integers(7, size=(SEEDS, 4)))
    for params in ({}, {"temperature": 0.6, "top_p": 1.0, "logit_bias": {2: 1.5}}):
        answers = verify(
            Speculation(logits, ids, draft_logits=logits[:, :4]), each_seed(SEEDS, **params), method=method
        )
        assert {answer.accepted for answer in answers} == {4}
        assert all(answer.acceptance == [1.0] * 4 for answer in answers)


@every_method
def test_disjoint_supports_accept_nothing(method):
    rows = speculation([[[0.6, 0.4, 0, 0]] * 3] * SEEDS, [[2, 3]] * SEEDS, [[[0, 0, 0.5, 0.5]] * 2] * SEEDS)
    answers = verify(rows, each_seed(SEEDS), method=method)
    assert {answer.accepted for answer in answers} == {0}
    assert {answer.tokens[0] for answer in answers} == {0, 1}
    assert all(answer.acceptance == [0.0, 0.0] for answer in answers)


@every_method
def test_an_empty_residual_gives_way_to_the_target(method):
    """Rejecting where max(p − q, 0) is 0 everywhere takes a draft that its own distribution cannot have drawn."""
    p = [0.0, 0.75, 0.25]
    rows = speculation([[p, P]] * SEEDS, [[0]] * SEEDS, [[p]] * SEEDS)
    answers = verify(rows, each_seed(SEEDS), method=method)
    assert {answer.accepted for answer in answers} == {0}
    assert {answer.tokens[0] for answer in answers} == {1, 2}


@every_method
def test_a_token_that_its_draft_model_cannot_have_drawn_is_accepted_if_the_target_can_draw_it(method):
    assert one([P, P], [0], [[0, 0.5, 0.5]], method).acceptance == [1.0]
    assert one([[0, 1, 0], P], [0], [[0, 0.5, 0.5]], method).acceptance == [0.0]


@pytest.mark.parametrize(("method", "at", "below"), [("standard", 0, 1), ("block", 1, 1)])
def test_a_uniform_at_the_boundary(method, at, below):
    """u·q < p is strict, u ≤ h is not; here p/q = h = ½."""
    target, draft = np.array([[0.25, 0.75]] * 2), np.array([[0.5, 0.5]])
    for u, accepted in ((0.5, at), (np.nextafter(0.5, 0), below), (np.nextafter(0.5, 1), 0)):
        assert METHODS[method](target, draft, [0], lambda place, u=u: u).accepted == accepted


# ---- Replay and batches ----


@st.composite
def rows(draw):
    size, drafts = draw(st.integers(1, 6)), draw(st.integers(0, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    target, draft = rng.dirichlet(np.full(size, 0.5), drafts + 1), rng.dirichlet(np.full(size, 0.5), drafts)
    ids = rng.integers(size, size=drafts).tolist()
    return target, draft, ids, draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**32 - 1))


@law
@given(rows(), st.sampled_from(list(METHODS)))
def test_anyone_can_replay_a_row(row, method):
    target, draft, ids, seed, step = row
    answer = one(target, ids, draft, method, seed=seed, step=step, stream=9)
    with np.errstate(divide="ignore"):
        exact = [np.exp(np.log(p)) / np.exp(np.log(p)).sum() for p in target]
    tokens, accepted = replayed(exact, draft, ids, method, seed, 9, step)
    assert (answer.tokens[: accepted + 1], answer.accepted, answer.seed) == (tokens, accepted, seed)
    assert answer.tokens[accepted + 1 :] == [-1] * (len(ids) - accepted)


@every_method
@pytest.mark.parametrize("kind", ["probs", "logits", "none"])
def test_a_row_has_the_same_bits_in_any_batch(kind, method):
    rng = np.random.default_rng(5)
    count, drafts, size = 24, 3, 300
    target = torch.from_numpy(rng.normal(0, 3, (count, drafts + 1, size))).float()
    ids = torch.from_numpy(rng.integers(-1, size, (count, drafts)))
    logits = target[:, :drafts] + 0.3 * torch.from_numpy(rng.normal(size=(count, drafts, size))).float()
    draft = {"probs": {"draft_probs": logits.softmax(-1)}, "logits": {"draft_logits": logits}, "none": {}}[kind]
    knobs = [{}, {"temperature": 0.5}, {"top_p": 0.9, "top_k": 40}, {"temperature": 0}]
    values = [K.check({"seed": row, **knobs[row % 4]}) for row in range(count)]
    whole = verify(Speculation(target, ids, **draft), values, method=method)
    order = rng.permutation(count)
    shuffled = verify(
        Speculation(target[order], ids[order], **{name: tensor[order] for name, tensor in draft.items()}),
        [values[row] for row in order],
        method=method,
    )
    assert [whole[row] for row in order] == shuffled
    for row in range(count):
        alone = Speculation(target, ids, **draft).part(row, row + 1)
        assert verify(alone, values[row : row + 1], method=method) == whole[row : row + 1]


def test_without_a_seed_one_is_drawn_and_replays():
    rows = speculation([[P, P]] * 8, [[1]] * 8, [[Q]] * 8)
    drawn = verify(rows, [K.check({})] * 8)
    assert len({answer.seed for answer in drawn}) == 8
    assert verify(rows, [K.check({"seed": answer.seed}) for answer in drawn]) == drawn


def test_the_draft_is_truncated_as_the_target_is_or_by_its_own_parameters():
    rows = Speculation(logits_of([[P, P]]), torch.tensor([[1]]), draft_logits=logits_of([[Q]]))
    values = [K.check({"seed": 1, "top_k": 1})]
    [shared] = verify(rows, values)
    assert shared.acceptance == [0.0]  # p is a point on 0, q a point on 1
    [own] = verify(rows, values, [K.check({"temperature": 1})])
    assert own == shared  # p(1) = 0 whatever q is
    [greedy] = verify(rows, [BASE], [K.check({"temperature": 0})])
    assert greedy.acceptance == pytest.approx([0.2])
