"""The draw: the exact inverse CDF along the total order, replayable, unbiased, and never outside what is kept."""

import functools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from rows_of import BACKENDS, INF, KINDS, ask, bitmask, draw_at, logs, row_of, softmax64, threads
from scipy import stats

import logitd_kernels as K

both = pytest.mark.parametrize("backend", BACKENDS)
ALMOST_ONE = math.nextafter(1.0, 0.0)
ALPHA = 1e-6


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


def order_of(row) -> list[int]:
    """Return the ids of the finite logits in the total order."""
    logits = row.double().tolist()
    return sorted((token for token, x in enumerate(logits) if x > -INF), key=lambda token: (-logits[token], token))


class Quantiles:
    """The inverse CDF of the `kept` largest logits, summed without rounding: float64 masses as fractions."""

    def __init__(self, row, kept: int, temperature: float = 1.0) -> None:
        logits, self.order = row.double().numpy(), order_of(row)[:kept]
        masses = np.exp((logits[self.order] - logits.max()) / temperature)
        self.ends = np.array([0, *map(Fraction, masses.tolist())]).cumsum()[1:]

    def token(self, u: float) -> int:
        """Return the first token whose cumulative mass exceeds u of the whole, the last with any mass for u = 1."""
        target = Fraction(u) * self.ends[-1]
        inside = [place for place, end in enumerate(self.ends) if end > target]
        return self.order[inside[0] if inside else list(self.ends).index(self.ends[-1])]

    def boundaries(self) -> list[float]:
        """Return the uniforms at which one token ends and the next begins."""
        return [float(end / self.ends[-1]) for end in self.ends[:-1]]


# ---- The exact partition of (0, 1] ----

PARTITIONS = {
    "normal": (row_of("normal", 40), {}),
    "cold": (row_of("normal", 40), {"temperature": 0.3}),
    "hot": (row_of("normal", 40), {"temperature": 7.0}),
    "float64": (row_of("normal", 40, torch.float64), {}),
    "ties": (row_of("ties", 60), {}),
    "equal": (row_of("equal", 37), {}),
    "masked": (row_of("mostly_masked", 300), {}),
    "far from 0": (row_of("high", 40), {}),
    "top_k": (row_of("normal", 40), {"top_k": 7}),
    "top_p": (row_of("normal", 40), {"top_p": 0.8}),
    "min_p": (row_of("normal", 40), {"min_p": 0.05}),
    "all cuts": (row_of("ties", 60), {"temperature": 1.7, "min_p": 0.1, "top_k": 30, "top_p": 0.9}),
    "long": (row_of("normal", 5000), {"top_k": 60}),
    "long and flat": (row_of("flat", 4200), {"top_k": 1100}),
}


@both
@pytest.mark.parametrize("name", PARTITIONS)
def test_the_draw_is_the_exact_inverse_cdf(name, backend):
    row, params = PARTITIONS[name]
    kept = ask(row, params, backend).kept
    quantiles = Quantiles(row, kept, params.get("temperature", 1.0))
    edges = quantiles.boundaries()[:60]
    near = [edge * (1 + side * 1e-11) for edge in edges for side in (-1, 1)]
    grid = [(place + 0.5) / 97 for place in range(97)]
    us = [u for u in (2.0**-54, *near, *grid, ALMOST_ONE, 1.0) if 0 < u <= 1]
    drawn = draw_at(row, us, params, backend)
    assert drawn.tokens == [quantiles.token(u) for u in us]
    assert set(drawn.tokens) >= set(quantiles.order[: len(edges)])


@both
def test_a_token_owns_its_lower_boundary(backend):
    """Equal logits, whose masses add exactly: u = 1/4 is the first of the second token's."""
    row = torch.zeros(4)
    us = [2**-54, ALMOST_ONE / 4, 0.25, math.nextafter(0.5, 0), 0.5, 0.75, 1.0]
    assert draw_at(row, us, {}, backend).tokens == [0, 0, 1, 1, 2, 3, 3]
    assert draw_at(torch.zeros(8192), us, {"top_k": 4096}, backend).tokens == [0, 1023, 1024, 2047, 2048, 3072, 4095]


@both
@pytest.mark.parametrize("kind", ["normal", "flat", "ties", "peaked", "mostly_masked"])
def test_the_partition_of_a_long_row_beyond_any_sorted_head(kind, backend):
    row = row_of(kind, 20_000)
    order = order_of(row)
    masses = np.exp((row.double().numpy() - float(row.max()))[order]).astype(np.longdouble)
    ends = np.cumsum(masses) / masses.sum()
    us = np.linspace(1e-6, 1 - 1e-6, 400)
    clear = np.abs(ends[np.searchsorted(ends, us)] - us) > 1e-12  # all but a u that rounding decides
    assert clear.mean() > 0.99
    drawn = np.array(draw_at(row, us.tolist(), {}, backend).tokens)
    assert drawn[clear].tolist() == [order[place] for place in np.searchsorted(ends, us, side="right")[clear]]


# ---- Which uniform decides which draw ----


@both
def test_every_draw_can_be_replayed_from_its_seed_stream_and_step(backend):
    row = row_of("normal", 40)
    quantiles = Quantiles(row, 40)
    for words in ({}, {"stream": 5}, {"step": 7}, {"stream": 2**32 - 1, "step": 2**32 - 1}):
        for seed in (0, 1, 2**32, 2**64 - 1):
            answer = ask(row, {"seed": seed, "n": 6, **words}, backend)
            us = [K.uniform(seed, words.get("stream", 0), words.get("step", 0), place) for place in range(6)]
            assert answer.tokens == [quantiles.token(u) for u in us]
            assert answer.seed == seed


@both
def test_seeds_streams_and_steps_give_independent_draws(backend):
    row = torch.zeros(1000)
    params = [{"seed": 2}, {"seed": 2, "stream": 1}, {"seed": 2, "step": 1}, {"seed": 2 + 2**32}, {"seed": 3}]
    drawn = [tuple(ask(row, {"n": 5, **values}, backend).tokens) for values in params]
    assert len(set(drawn)) == len(params)


@both
def test_rows_with_one_seed_are_correlated_by_contract_and_streams_part_them(backend):  # 28, 55
    rows = K.DenseRows(torch.zeros(6, 1000))
    alike = K.sample(rows, K.check({"seed": 42}), backend=BACKENDS[backend])
    assert len({tuple(answer.tokens) for answer in alike}) == 1
    streams = [K.check({"seed": 42, "stream": stream}) for stream in range(6)]
    assert len({tuple(answer.tokens) for answer in K.sample(rows, streams, backend=BACKENDS[backend])}) == 6
    seeds = [K.check({"seed": seed}) for seed in range(6)]
    assert len({tuple(answer.tokens) for answer in K.sample(rows, seeds, backend=BACKENDS[backend])}) == 6


# ---- χ² of 100,000 draws ----

uniform = functools.cache(K.uniform)  # the same hundred thousand for every row


@pytest.fixture
def _cached_uniforms():
    with mock.patch("logitd_kernels.sampling.draw.uniform", uniform):
        yield


SHAPES = {
    "four tokens": (logs([0.1, 0.2, 0.3, 0.4]), {}),
    "normal, cold": (row_of("normal", 1000), {"temperature": 0.8}),
    "flat": (row_of("flat", 64), {}),
    "ties, truncated": (row_of("ties", 300), {"top_p": 0.9}),
    "long": (row_of("normal", 5000), {"min_p": 0.001}),
}


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """Return the p-value of counts; bins in which fewer than five are expected make one bin."""
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 5:
        counts, expected = (np.append(x[:-2], x[-2:].sum()) for x in (counts, expected))
    return stats.chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue


@both
@pytest.mark.usefixtures("_cached_uniforms")
@pytest.mark.parametrize("name", SHAPES)
def test_draws_have_the_distribution_they_report(name, backend):
    row, params = SHAPES[name]
    params = [K.check({"seed": 2024, "step": step, "n": 1000, **params}) for step in range(100)]
    answers = K.sample(K.DenseRows(row.expand(100, -1)), params, backend=BACKENDS[backend])
    counts = np.bincount([token for answer in answers for token in answer.tokens], minlength=len(row))
    expected = softmax64(row, params[0]["temperature"])
    expected[order_of(row)[answers[0].kept :]] = 0
    assert counts.sum() == 100_000
    assert counts[expected == 0].sum() == 0
    assert chi_square(counts, 100_000 * expected / expected.sum()) > ALPHA


def test_the_statistic_would_notice_a_bias_of_two_percent():
    rng = np.random.default_rng(0)
    expected = np.full(64, 1 / 64)
    biased = expected * np.where(np.arange(64) % 2, 1.03, 0.97)
    assert chi_square(rng.multinomial(100_000, expected), 100_000 * expected) > ALPHA
    assert chi_square(rng.multinomial(100_000, biased), 100_000 * expected) < ALPHA


@both
@pytest.mark.usefixtures("_cached_uniforms")
def test_a_rare_tail_is_drawn_as_often_as_it_should_be(backend):  # 25
    """One token and 262,144 others 20.5 nats below: 33 of 100,000 draws; a float32 race draws none."""
    row = torch.full((262_145,), -20.5)
    row[0] = 0
    answer = ask(row, {"seed": 25, "n": 100_000}, backend)
    mass = math.exp(-20.5)
    us = [uniform(25, 0, 0, place) * (1 + 262_144 * mass) for place in range(100_000)]
    expected = [max(0, math.ceil((u - 1) / mass)) for u in us]
    assert 10 < sum(token > 0 for token in expected) < 60
    # The tail's running sum rounds at 1: a token may be its neighbour.
    assert all(abs(one - other) <= 1 for one, other in zip(answer.tokens, expected, strict=True))
    assert [token > 0 for token in answer.tokens] == [token > 0 for token in expected]


# ---- What must never be drawn ----

US = [2.0**-54, *[(place + 0.5) / 500 for place in range(500)], ALMOST_ONE, 1.0]


@both
@pytest.mark.parametrize("size", [40, 5000])
@pytest.mark.parametrize("how", ["-inf", "mask", "allowed_ids", "banned_ids", "logit_bias"])
def test_a_masked_token_is_never_drawn(how, size, backend):
    """The largest logits of all are masked, and a third of the others."""
    row = row_of("normal", size)
    masked = {*order_of(row)[:3], *range(0, size, 3)}
    rest = sorted(set(range(size)) - masked)
    params, mask = {}, None
    if how == "-inf":
        row[sorted(masked)] = -INF
    elif how == "mask":
        mask = bitmask(rest, size)
    else:
        params = {how: {"allowed_ids": rest, "banned_ids": list(masked), "logit_bias": dict.fromkeys(masked)}[how]}
    for more in ({}, {"top_k": 10}, {"top_p": 0.9}, {"min_p": 0.01}, {"temperature": 1e300}, {"temperature": 0}):
        answer = draw_at(row, US, {**params, **more}, backend, mask)
        assert not masked & set(answer.tokens)
        assert answer.kept <= len(rest)


CUTS = [
    {},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 1300},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": ALMOST_ONE},
    {"min_p": 0.2},
    {"min_p": 1e-9},
    {"temperature": 0.01},
    {"temperature": 1e300, "top_p": 0.5},
]


@both
@pytest.mark.parametrize("size", [3, 300, 4500])
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_never_leads_outside_what_is_kept(kind, size, backend):
    row = row_of(kind, size)
    logits, order = row.double().numpy(), order_of(row)
    for params in CUTS:
        answer = draw_at(row, [2.0**-54, ALMOST_ONE, 1.0], params, backend)
        with np.errstate(over="ignore"):
            masses = np.exp((logits - logits.max()) / params.get("temperature", 1.0))
        assert answer.tokens[0] == order[0], params
        assert set(answer.tokens) <= set(order[: answer.kept]), params
        assert all(masses[token] > 0 for token in answer.tokens), params
        assert all(-INF < logprob <= 0 for logprob in answer.logprobs), params


@both
def test_a_u_of_1_draws_the_last_token_that_is_kept(backend):
    row = torch.linspace(2, -2, 5000)
    for top_k in (1, 2, 64, 65, 1024, 1025, 4999):
        assert draw_at(row, [1.0], {"top_k": top_k}, backend).tokens == [top_k - 1]
    assert draw_at(row, [1.0], {}, backend).tokens == [4999]


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("u", [ALMOST_ONE, 1.0])
def test_a_tail_that_adds_mass_only_by_rounding_is_no_accident(u, dtype, backend):
    """Three parts of 0.45 units in the last place of 1: one is nothing, two are a unit, three a unit still."""
    unit = 2.0**-52
    row = torch.full((9000,), -1e4)
    row[0], row[1], row[2:2202], row[2202:5202] = 0, *(math.log(0.45 * unit / count) for count in (1, 2200, 3000))
    answer = draw_at(row.to(dtype), [u], {}, backend)
    assert 0 <= answer.tokens[0] < 5202
    assert answer.kept == 9000
