"""The head form must never claim `exact` wrongly: thousands of honest heads against the rows that they come from."""

import contextlib
import math

import numpy as np
import pytest
import torch
from head_cases import (
    BACKENDS,
    CUTS,
    EDITS,
    FEW,
    INF,
    ROWS,
    TEMPERATURES,
    Case,
    differences,
    draw,
    hunt,
    random_case,
    random_ids,
    settled,
    uniform_of,
    verdict,
)

import logitd_kernels as K
from logitd_kernels.errors import DtypeError
from logitd_kernels.tail import Tail


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", ROWS)
def test_exact_means_that_the_whole_row_answers_the_same(kind, cut):
    rng = np.random.default_rng([list(ROWS).index(kind), list(CUTS).index(cut)])
    seen = hunt(random_case(rng, kind, cut) for _ in range(150))
    assert seen["exact"] >= 30  # an implementation that never answers would pass everything else


def test_many_heads_are_answered_and_many_are_not():
    rng = np.random.default_rng(7)
    cases = [random_case(rng, kind, cut) for kind in ROWS for cut in CUTS for _ in range(12)]
    seen = hunt(cases)
    assert seen["exact"] > 0.3 * len(cases)
    assert seen["open"] > 0.1 * len(cases)


@pytest.mark.parametrize("cut", ["none", "top_k", "top_p", "min_p"])
@pytest.mark.parametrize("edit", EDITS)
def test_exact_holds_under_edits_of_sent_and_unsent_tokens(edit, cut):
    rng = np.random.default_rng([list(EDITS).index(edit), list(CUTS).index(cut), 1])
    cases = []
    for kind in ROWS:
        for _ in range(40):
            case = random_case(rng, kind, cut)
            EDITS[edit](rng, case)
            case.params["temperature"] *= float(rng.random() > 0.1)  # some greedy
            cases.append(case)
    seen = hunt(cases)
    assert seen["exact"] >= 40
    assert seen["open"] >= 10


# ---- Long rows: the torch backend's radix selection and float32 sweep on the other side ----


@pytest.mark.parametrize("kind", ["normal", "ties", "heavy_tail", "masked"])
def test_exact_holds_on_rows_longer_than_any_sorted_head(kind):
    rng = np.random.default_rng([list(ROWS).index(kind), 2])

    def case() -> Case:
        short = random_case(rng, kind, list(CUTS)[rng.integers(len(CUTS))])
        row = torch.from_numpy(ROWS[kind](rng, 5000)).float()
        return Case(row, int(rng.choice([64, 1024, 4999])), short.params, float(rng.uniform(1e-9, 1)))

    seen = hunt(case() for _ in range(60))
    assert seen["exact"] >= 10


# ---- One head, one log Z, several tails ----


def tail_of_equals(rng, count: int, ceiling: float, mass: float) -> np.ndarray:
    return np.full(count, math.log(mass / count))


def tail_at_the_ceiling(rng, count: int, ceiling: float, mass: float) -> np.ndarray:
    """As many tokens as fit at the ceiling, one for the rest, the others masked."""
    full = min(int(mass / math.exp(ceiling)), count)
    rest = mass - full * math.exp(ceiling)
    tail = np.full(count, -INF)
    tail[:full] = ceiling
    if full < count and rest > 0:
        tail[full] = math.log(rest)
    return tail


def tail_of_one(rng, count: int, ceiling: float, mass: float) -> np.ndarray:
    """One token as heavy as may be, the others alike."""
    first = min(mass * (1 - 1e-9), math.exp(ceiling))
    if count == 1 or first > mass * (1 - 1e-12):
        return tail_at_the_ceiling(rng, count, ceiling, mass)
    rest = (mass - first) / (count - 1)
    return np.concatenate([[math.log(first)], np.full(count - 1, math.log(rest))])


def tail_at_random(rng, count: int, ceiling: float, mass: float) -> np.ndarray:
    shares = rng.gamma(0.3, size=count) + 1e-12
    shares = shares / shares.sum()
    limit = math.exp(ceiling) / mass
    even = np.full(count, 1 / count)
    blend = min(1.0, (limit - 1 / count) / max(shares.max() - 1 / count, 1e-300))  # the largest share meets the ceiling
    return np.log(mass * (blend * shares + (1 - blend) * even))


TAILS = (tail_of_equals, tail_at_the_ceiling, tail_of_one, tail_at_random)


def rows_of_one_head(rng) -> tuple[list[torch.Tensor], int]:
    """Build float64 rows with the same first `size` logits and the same log Z, whose tails differ."""
    size, count = int(rng.integers(1, 9)), int(rng.integers(1, 60))
    head = np.sort(rng.normal(0, rng.choice([0.5, 2, 6]), size))[::-1]
    mass = count * math.exp(head[-1]) * float(rng.choice([1.0, 10 ** -rng.uniform(0, 4)]))
    tails = [np.minimum(tail(rng, count, head[-1], mass), head[-1]) for tail in TAILS]  # log rounds
    return [torch.from_numpy(np.concatenate([head, tail])) for tail in tails], size


@pytest.mark.parametrize("cut", CUTS)
def test_exact_holds_for_every_tail_that_fits_the_head(cut):
    rng = np.random.default_rng([list(CUTS).index(cut), 3])
    exact = judged = 0
    for _ in range(250):
        rows, size = rows_of_one_head(rng)
        params = {"temperature": float(rng.choice(TEMPERATURES)), **CUTS[cut](rng, size)}
        cases = [Case(row, size, params, uniform_of(rng, rows[0], params)) for row in rows]
        for case in cases:
            case.u = cases[0].u
        told = cases[0].head()  # sent once; every row below could have sent it
        judged += 1
        if settled(told):
            exact += 1
            for case in cases:
                for name in BACKENDS:
                    assert not differences(told, case.dense(name)), (name, case, told, case.dense(name))
    assert exact > 0.2 * judged
    assert exact < judged


def test_the_tails_do_fit_one_head():
    rng = np.random.default_rng(4)
    for _ in range(200):
        rows, size = rows_of_one_head(rng)
        log_z = [float(torch.logsumexp(row, 0)) for row in rows]
        assert max(log_z) - min(log_z) < 1e-8
        assert all(torch.equal(row[:size], rows[0][:size]) for row in rows)
        assert all(float(row[size:].max()) <= float(row[size - 1]) for row in rows)


def test_the_interval_of_the_tail_holds_its_true_mass():
    """At every temperature, from log Z at any others, in float64 and rounded to float32, at any offset."""
    rng = np.random.default_rng(5)
    for _ in range(1500):
        case = random_case(rng, list(ROWS)[rng.integers(len(ROWS))], "none")
        case.row = (case.row.double() + rng.choice([0, 0, 100, -1e5, 1e5, 8e7])).float()
        ordered = torch.sort(case.row.double(), descending=True).values
        rest = ordered[case.size :]
        for temperature in (*TEMPERATURES, 100.0):
            told = Tail.of(case.head_rows().row(0)).log_mass(temperature)
            true = float(torch.logsumexp((rest - ordered[0]) / temperature, 0)) if len(rest) else -INF
            slack = 1e-9 + 2**-22 * math.exp(-max(true, -700))  # rounding relative to the largest mass, 1
            assert told.low - slack <= true <= told.high + slack, (case, temperature, told, true)


# ---- Single rows on which a bound is easily wrong ----

TIE = float(np.float32(1.1))
HARD = {
    # Four finite logits, two sent; the banned ids were masked already, so two finite tail tokens remain.
    "a ban of what is masked already": Case(
        torch.tensor([3.0, 2.0, 1.0, 1.0, -INF, -INF, -INF, -INF]), 2, {"banned_ids": [4, 5]}, 0.99, tells_count=True
    ),
    "a mask of what is masked already": Case(
        torch.tensor([3.0, 2.0, 1.0, 1.0, -INF, -INF, -INF, -INF]),
        2,
        {},
        0.99,
        tells_count=True,
        mask=torch.tensor([[0b1111]], dtype=torch.int32),
    ),
    # e^-1000 underflows at T = 1, but at T = 100 these tokens hold 4.5e-5 each.
    "a tail that underflows at T = 1": Case(torch.tensor([0.0] + [-1000.0] * 5001), 2, {"temperature": 100.0}, 0.9),
    "a tail that underflows at the T sent": Case(
        torch.tensor([0.0] + [-40.0] * 501), 2, {"temperature": 20.0}, 0.9, temperatures=(0.05,)
    ),
    # 1 + 0.1 rounds up to float32(1.1), the logit of token 5, and token 1 comes first.
    "a bias that rounds up into a tie": Case(
        torch.tensor([1.0, 1.0, -5, -5, -5, TIE]), 2, {"temperature": 0, "logit_bias": {1: 0.1}}
    ),
    "a bias that rounds up into a tie, drawn": Case(
        torch.tensor([1.0, 1.0, -5, -5, -5, TIE]), 2, {"top_k": 1, "logit_bias": {1: 0.1}}
    ),
    # float32 has a spacing of 8 at 8e7: log Z is 80,000,003.9 and arrives as 80,000,000.
    "a float32 log Z at a large offset": Case(torch.full((50,), 8e7), 1, {}, 0.03, torch.float32),
    # The head fits float32, its row does not: the sum 1 + 0.1 is rounded to float64 there, and is no tie.
    "a float64 row whose head fits float32": Case(
        torch.tensor([1.0, TIE, 0.123456789012, 0.1], dtype=torch.float64),
        2,
        {"temperature": 0, "logit_bias": {0: 0.1}},
    ),
    # 1/T overflows to infinity, and tied tokens share the mass at any T.
    "a temperature without a reciprocal": Case(torch.zeros(3), 1, {"temperature": 1e-310}, 0.9),
    "a temperature without a reciprocal, two sent": Case(torch.zeros(3), 2, {"temperature": 1e-310}, 0.9),
    "a head cut inside ties": Case(torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 0.0]), 3, {"top_k": 3}, 0.99),
    "a head cut inside ties, all kept": Case(
        torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 0.0]), 3, {"top_k": 2, "ties": "all"}, 0.99
    ),
    "a tail heavier than its head": Case(torch.tensor([0.0] * 300), 2, {}, 0.5),
    "one token of one": Case(torch.tensor([4.0]), 1),
    "every token": Case(torch.tensor([1.0, 2.0, 3.0]), 3, {"temperature": 20.0}, 0.7),
    "top_k above the finite count": Case(torch.tensor([3.0, 2.0, 1.0, -INF, -INF]), 2, {"top_k": 4}, 0.99),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_row(name):
    how, wrong = verdict(HARD[name])
    assert not wrong, (how, wrong, HARD[name].head())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_log_z_in_half_precision_is_refused_or_bounded_by_its_own_rounding(dtype):
    rng = np.random.default_rng(6)
    cases = [random_case(rng, "heavy_tail", "none") for _ in range(200)]
    for case in cases:
        case.log_z_dtype = dtype
    with contextlib.suppress(DtypeError):
        assert hunt(cases)["exact"] > 10


@pytest.mark.parametrize("temperature", [1e-300, 1e-38, 1e-6, 1e30, 1e300])
@pytest.mark.parametrize("kind", ROWS)
def test_exact_holds_at_extreme_temperatures(kind, temperature):
    rng = np.random.default_rng([list(ROWS).index(kind), 11])
    cases = [random_case(rng, kind, "none") for _ in range(30)]
    for case in cases:
        case.params["temperature"] = temperature
    assert hunt(cases)["exact"] > 3  # whole rows at least


def test_offsets_and_small_biases_round_in_float32_and_exact_still_holds():
    rng = np.random.default_rng(12)
    cases = []
    for _ in range(600):
        case = random_case(rng, list(ROWS)[rng.integers(len(ROWS))], list(CUTS)[rng.integers(len(CUTS))])
        case.row = (case.row.double() + float(rng.choice([1e5, -1e5, 3e6]))).float()
        ids = random_ids(rng, len(case.row), 4)
        case.params["logit_bias"] = {token: float(rng.choice([0.003, -0.003, 0.02, 1.0])) for token in ids}
        cases.append(case)
    seen = hunt(cases)
    assert min(seen["exact"], seen["open"]) > 100


def test_not_exact_where_two_backends_round_the_draw_to_different_tokens():
    """Put u between where `reference` and `torch` end the third token: no answer could agree with both."""
    rng = np.random.default_rng(13)
    split = 0
    for _ in range(60):
        row = torch.full((5000,), -float(rng.uniform(8, 15)))
        row[:3] = torch.tensor([0.0, -0.3, -0.6])
        whole = {name: backend.row(row, 1.0).stats.everything.mass for name, backend in BACKENDS.items()}
        through = math.fsum(math.exp(float(logit)) for logit in row[:3])
        u = through * (1 / whole["reference"] + 1 / whole["torch"]) / 2
        case = Case(row, 64, {}, u)
        split += case.dense("reference").tokens != case.dense("torch").tokens
        _, wrong = verdict(case)
        assert not wrong, (wrong, whole, case)
    assert split > 0 or max(whole.values()) == min(whole.values())


def test_a_vast_vocabulary_does_not_break_the_arithmetic():
    """The rounding of 2^25 possible tail tokens is larger than the only token sent."""
    rows = K.HeadRows(torch.tensor([[0]]), torch.tensor([[0.0]]), torch.tensor([math.log(2)]), 1 << 25)
    told = draw(rows, {"temperature": 20.0}, 0.5)
    assert isinstance(told, K.RowFault)
    assert told.code == "head_too_short"


def test_numbers_of_an_answer_are_plain():
    """numpy's float64 is a float to Python, but not to orjson."""
    told = Case(FEW, 7, {"temperature": 0.9, "n": 2}, 0.5, tells_count=True).head(logprobs=2)
    numbers = [*told.logprobs, told.entropy, told.entropy_kept, told.kept_mass, *told.top.of_tokens]
    assert {type(number) for number in numbers} == {float}
    assert {type(number) for number in [*told.tokens, told.kept, *(top.token for top in told.top.top)]} == {int}
