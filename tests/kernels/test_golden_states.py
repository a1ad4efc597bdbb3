"""Worked numbers: samplers with a state, and what they return for the next step."""

import math

import numpy as np
import pytest
import torch
from golden import FOUR, MASKED, both, one_thread  # noqa: F401  (a fixture)
from rows_of import ask, draw_at, left_of, logs

DOWN = FOUR[::-1]

# ---- Mirostat: (what is left, the next μ) ----


@both
def test_mirostat_2(backend):
    row = logs((0.5, 0.25, 0.125, 0.125))
    for mu, kept in ((0.5, 1), (1.5, 1), (2.5, 2), (3.5, 4)):
        told = draw_at(row, [0.4], {"mirostat": 2, "mirostat_mu": mu, "mirostat_tau": 3, "mirostat_eta": 0.2}, backend)
        surprise = -math.log2(0.5 / sum((0.5, 0.25, 0.125, 0.125)[:kept]))
        assert (told.kept, told.tokens) == (kept, [0])
        assert told.state == {"mirostat_mu": pytest.approx(mu - 0.2 * (surprise - 3), rel=1e-9)}
    start = draw_at(row, [0.99], {"mirostat": 2}, backend)
    assert (start.kept, start.tokens) == (4, [3])  # μ = 2τ = 10 bits
    assert start.state == {"mirostat_mu": pytest.approx(10 - 0.1 * (3 - 5), rel=1e-9)}


def first_of_mirostat(probabilities, mu):
    """Basu et al., algorithm 1, in the plainest way."""
    p = np.sort(probabilities)[::-1]
    m = min(100, len(p))
    t = [math.log((i + 2) / (i + 1)) for i in range(m - 1)]
    b = [math.log(p[i] / p[i + 1]) for i in range(m - 1)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    epsilon = s - 1
    k = (epsilon * 2**mu / (1 - len(p) ** -epsilon)) ** (1 / s)
    return max(1, min(len(p), int(k)))


@both
@pytest.mark.parametrize("size", [2, 5, 99, 100, 101, 400, 5000])
@pytest.mark.parametrize("mu", [0.1, 2.0, 5.0, 9.0])
def test_mirostat_1(mu, size, backend):
    logits = np.random.default_rng(size).normal(0, 2, size)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    answer = draw_at(torch.from_numpy(logits), [1e-9], {"mirostat": 1, "mirostat_mu": mu, "mirostat_tau": 3}, backend)
    assert answer.kept == first_of_mirostat(probabilities, mu)
    surprise = -math.log2(max(probabilities) / np.sort(probabilities)[-answer.kept :].sum())
    assert answer.state == {"mirostat_mu": pytest.approx(mu - 0.1 * (surprise - 3), rel=1e-9)}


@both
@pytest.mark.parametrize("mirostat", [1, 2])
@pytest.mark.parametrize("mu", [-1e308, -1e6, -1.0, 0.0, 1e6, 1e308])
@pytest.mark.parametrize("row", [[0.0], [1.0] * 3, [1.0] * 5000, [0.0, -1e300], [0.0, MASKED], [3e38, 0, -3e38]])
def test_mirostat_on_awkward_rows(row, mu, mirostat, backend):
    answer = ask(row, {"mirostat": mirostat, "mirostat_mu": mu}, backend)
    assert 1 <= answer.kept <= len(row)
    assert math.isfinite(answer.state["mirostat_mu"])
    assert math.isfinite(answer.logprobs[0])


@both
@pytest.mark.parametrize("mirostat", [1, 2])
def test_mirostat_fed_with_its_state_is_the_sequence_counted_by_hand(mirostat, backend):
    logits = np.sort(np.random.default_rng(4).normal(0, 2, 300))[::-1].copy()  # token ids are ranks
    p = np.exp(logits) / np.exp(logits).sum()
    state, mu = {}, 6.0  # 2τ
    for step in range(25):
        kept = first_of_mirostat(p, mu) if mirostat == 1 else max(1, int((-np.log2(p) <= mu).sum()))
        params = {"mirostat": mirostat, "mirostat_tau": 3, "mirostat_eta": 0.3, "step": step, **state}
        answer = ask(torch.from_numpy(logits), params, backend)
        assert answer.kept == kept
        mu -= 0.3 * (-math.log2(p[answer.tokens[0]] / p[:kept].sum()) - 3)
        state = answer.state
        assert state == {"mirostat_mu": pytest.approx(mu, rel=1e-9)}


@both
def test_a_state_is_returned_by_what_keeps_one_alone(backend):
    assert ask(logs(FOUR), {"top_k": 2}, backend).state is None
    assert ask(logs(FOUR), {"mirostat_mu": 3.0, "adaptive_sum": 1.0}, backend).state is None
    greedy = ask(logs(FOUR), {"mirostat": 2, "mirostat_mu": 4.0, "temperature": 0}, backend)
    assert greedy.state == {"mirostat_mu": pytest.approx(4 + 0.1 * 5)}  # a token without surprise
    both_kept = ask(logs(FOUR), {"mirostat": 2, "adaptive_target": 0.3}, backend).state
    assert set(both_kept) == {"mirostat_mu", "adaptive_sum", "adaptive_weight"}


# ---- adaptive_p ----


@both
def test_adaptive_p(backend):
    """At the start the aim is the target, 0.25: distances 1/2, 1/6, 1/6, 1/2 and logits 10/3 and 5 - 5/21."""
    told = left_of(DOWN, {"adaptive_target": 0.25}, backend)
    ratio = math.exp(10 / 3 - (5 - 5 / 21))
    assert told == pytest.approx([p / (2 + 2 * ratio) for p in (ratio, 1, 1, ratio)], abs=1e-9)
    first = draw_at(logs(DOWN), [1e-6], {"adaptive_target": 0.25}, backend)
    assert first.tokens == [0]
    assert first.logprobs == [pytest.approx(math.log(ratio / (2 + 2 * ratio)))]
    assert first.state == {"adaptive_sum": pytest.approx(0.4 + 0.9 * 2.5), "adaptive_weight": pytest.approx(10)}
    assert first.entropy == pytest.approx(1.2798542)
    assert first.entropy_kept == pytest.approx(-sum(p * math.log(p) for p in told))


@both
def test_adaptive_p_aims_away_from_what_was_drawn(backend):
    state = {"adaptive_sum": 3.0, "adaptive_weight": 10.0}  # on average 0.3: aim at 0.2
    told = left_of(DOWN, {"adaptive_target": 0.25, **state}, backend)
    distances = [abs(p - 0.2) / 0.3 for p in DOWN]
    weights = np.exp([-10 * d * d / (1 + d) for d in distances])
    assert told == pytest.approx((weights / weights.sum()).tolist(), abs=1e-9)
    cut = left_of(DOWN, {"adaptive_target": 0.25, "top_k": 2, **state}, backend)  # 4/7 and 3/7 of what is left
    weights = np.exp([-10 * d * d / (1 + d) for d in ((4 / 7 - 0.2) / 0.3, (3 / 7 - 0.2) / 0.3)])
    assert cut == pytest.approx([*(weights / weights.sum()), 0, 0], abs=1e-9)


@both
def test_a_sequence_fed_with_its_state_keeps_its_target(backend):
    """Forty steps by hand: the sums are those of the probabilities drawn."""
    row = torch.randn(300, generator=torch.Generator().manual_seed(2)) * 2
    masses = torch.softmax(row.double(), 0)
    state, total, weight = {}, 0.3 / 0.1, 1 / 0.1
    for step in range(40):
        answer = ask(row, {"adaptive_target": 0.3, "step": step, **state}, backend)
        total, weight = float(masses[answer.tokens[0]]) + 0.9 * total, 1 + 0.9 * weight
        state = answer.state
        assert state == {"adaptive_sum": pytest.approx(total), "adaptive_weight": pytest.approx(weight)}
