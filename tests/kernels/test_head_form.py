"""The head form must never claim `exact` wrongly: thousands of honest heads against the rows that they come from."""

import contextlib
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import pytest
import torch

import logitd_kernels as K
from logitd_kernels.errors import DtypeError, HeadError, ParameterError, ShapeError
from logitd_kernels.tail import Tail

INF = math.inf
BACKENDS = {name: K.pick(name) for name in ("reference", "torch")}
TOLERANCE = 1e-3  # what `RowResult` promises of a number that the tail does not leave open
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LOG_Z_DTYPES = (torch.float64, torch.float32)
TEMPERATURES = (0.05, 0.3, 0.7, 1.0, 1.3, 5.0, 20.0)


# ---- One case: a row, what is asked of it, and how much of it is sent ----


@dataclass
class Case:
    """A row [V] and a request for it, of which the `size` largest logits are sent."""

    row: torch.Tensor
    size: int
    params: dict = field(default_factory=dict)
    u: float | None = None  # the uniform; None draws by the seed in `params`
    log_z_dtype: torch.dtype = torch.float64
    temperatures: tuple[float, ...] = (1.0,)
    tells_count: bool = False  # whether the client says how many logits are finite
    mask: torch.Tensor | None = None

    def head_rows(self, size: int | None = None) -> K.HeadRows:
        ordered, ids = torch.sort(self.row.double(), descending=True, stable=True)
        size = size or self.size
        log_z = [float(torch.logsumexp(ordered / temperature, 0)) for temperature in self.temperatures]
        return K.HeadRows(
            ids=ids[None, :size],
            logits=self.row[ids[:size]][None],
            log_z=torch.tensor([log_z], dtype=torch.float64).to(self.log_z_dtype),
            vocab_size=len(self.row),
            temperatures=self.temperatures,
            finite_count=(ordered > -INF).sum()[None] if self.tells_count else None,
            mask=self.mask,
        )

    def head(self, size: int | None = None, **options):
        return draw(self.head_rows(size), self.params, self.u, **options)

    def dense(self, backend: str):
        return draw(K.DenseRows(self.row[None], self.mask), self.params, self.u, backend=BACKENDS[backend])


def draw(rows, params, u, **options):
    """Sample the only row of `rows`, with u in place of the generator's uniform when one is given."""
    values = K.check({"seed": 1, **params})
    if u is None:
        return K.sample(rows, values, **options)[0]
    with mock.patch("logitd_kernels.sampling.draw.uniform", return_value=u):
        return K.sample(rows, values, **options)[0]


def settled(answer) -> bool:
    return isinstance(answer, K.RowResult) and answer.exact


def differences(told, truth) -> list[str]:
    """Name what an exact answer says that the whole row contradicts."""
    if isinstance(truth, K.RowFault):
        return [] if isinstance(told, K.RowFault) and told.code == truth.code else ["fault"]
    if isinstance(told, K.RowFault):
        return ["fault"]
    wrong = [] if told.tokens == truth.tokens else ["tokens"]
    if told.kept is not None and told.kept != truth.kept:
        wrong.append("kept")
    numbers = [("logprob", *pair) for pair in zip(told.logprobs, truth.logprobs, strict=True)]
    numbers += [(name, getattr(told, name), getattr(truth, name)) for name in ("entropy", "entropy_kept", "kept_mass")]
    return wrong + [name for name, a, b in numbers if a is not None and not abs(a - b) <= TOLERANCE]


def verdict(case: Case) -> tuple[str, list[str]]:
    """Return how the head was answered, and what is wrong with the answer against both backends."""
    try:
        told = case.head()
    except HeadError as error:
        return "refused", [f"an honest head was refused: {error}"]
    if isinstance(told, K.RowFault) and told.code == "head_too_short":
        return "open", []
    wrong = [f"{name}: {what}" for name in BACKENDS for what in differences(told, case.dense(name))]
    return ("exact" if settled(told) else "fault"), wrong


def hunt(cases) -> Counter:
    """Judge every case; fail with the number of wrong answers and the shortest of them."""
    seen, wrong = Counter(), []
    for case in cases:
        how, faults = verdict(case)
        seen[how] += 1
        if faults:
            wrong.append((len(case.row), faults, case))
    if wrong:
        _, faults, case = min(wrong, key=lambda item: item[0])
        pytest.fail(f"{len(wrong)} of {seen.total()} answers are wrong; the shortest row: {faults}\n{case}")
    return seen


# ---- Rows and requests ----


def normal(rng, size):
    return rng.normal(0, rng.choice([0.1, 1, 3, 10]), size)


def ties(rng, size):
    return rng.integers(-3, 2, size).astype(float)


def equal(rng, size):
    return np.full(size, rng.normal())


def peaked(rng, size):
    return np.where(np.arange(size) == rng.integers(size), rng.uniform(2, 30), rng.normal(0, 1, size))


def heavy_tail(rng, size):
    """A few tokens a little above a broad, nearly flat tail that outweighs them."""
    return np.where(np.arange(size) < 3, rng.uniform(0, 2, size), rng.uniform(-0.3, 0, size))


def masked(rng, size):
    row = np.where(rng.random(size) < 0.6, -INF, rng.normal(0, 2, size))
    row[rng.integers(size)] = 1.0
    return row


def cliff(rng, size):
    """One token so far above the others that their mass underflows at T = 1, and matters at a high one."""
    return np.where(np.arange(size) == rng.integers(size), 0.0, -rng.choice([30.0, 300.0, 1000.0]))


ROWS = {kind.__name__: kind for kind in (normal, ties, equal, peaked, heavy_tail, masked, cliff)}
CUTS = {
    "none": lambda rng, size: {},
    "top_k": lambda rng, size: {"top_k": int(rng.integers(1, size + 2))},
    "top_k ties": lambda rng, size: {"top_k": int(rng.integers(1, size + 1)), "ties": "all"},
    "top_p": lambda rng, size: {"top_p": float(rng.choice([1e-12, 0.1, 0.5, 0.9, 0.99, rng.uniform(0.01, 1)]))},
    "min_p": lambda rng, size: {"min_p": float(rng.choice([1.0, 0.5, 0.1, 0.01, 1e-4]))},
    "all": lambda rng, size: {"top_k": int(rng.integers(1, size + 1)), "top_p": 0.8, "min_p": 0.02},
}


def uniform_of(rng, row: torch.Tensor, params: dict) -> float:
    """Return a uniform: half of them anywhere, half close to where one token ends and the next begins."""
    if rng.random() < 0.5:
        return float(rng.uniform(2**-53, 1))
    temperature = params.get("temperature", 1.0) or 1.0
    masses = np.exp((np.sort(row.double().numpy())[::-1] - float(row.max())) / temperature)
    ends = np.cumsum(masses) / masses.sum()
    near = ends[rng.integers(min(len(ends), 8))] * (1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-5, -1))
    return float(min(max(near, 2**-53), 1.0))


def sizes_of(rng, vocab: int) -> int:
    """Return a head size: 1, V, or anything between, small ones more often."""
    return int(rng.choice([1, vocab, rng.integers(1, vocab + 1), rng.integers(1, min(vocab, 8) + 1)]))


def random_case(rng, kind: str, cut: str) -> Case:
    vocab = int(rng.choice([1, 2, 5, 20, 60, 300]))
    row = torch.from_numpy(ROWS[kind](rng, vocab)).to(DTYPES[rng.choice(4, p=[0.55, 0.15, 0.15, 0.15])])
    temperature = float(rng.choice([1.0, rng.choice(TEMPERATURES), math.exp(rng.uniform(-3, 3))]))
    params = {"temperature": temperature, **CUTS[cut](rng, vocab)}
    sent = [(1.0,), (1.0,), (temperature,), (1.0, temperature * 1.5), (0.05, 20.0), (0.3, 1.0, 4.0)][rng.integers(6)]
    return Case(
        row=row,
        size=sizes_of(rng, vocab),
        params=params,
        u=uniform_of(rng, row, params),
        log_z_dtype=LOG_Z_DTYPES[rng.integers(2)],
        temperatures=sent,
        tells_count=bool(rng.random() < 0.5),
    )


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


# ---- Edits: biases, bans, allowed ids and masks, on sent and unsent ids ----


def random_ids(rng, vocab: int, most: int) -> list[int]:
    return [int(token) for token in rng.choice(vocab, int(rng.integers(1, min(most, vocab) + 1)), replace=False)]


def biased(rng, case: Case) -> None:
    ids = random_ids(rng, len(case.row), 3)
    case.params["logit_bias"] = {token: float(rng.choice([-INF, -5, -0.1, 0.1, 2, 10])) for token in ids}


def banned(rng, case: Case) -> None:
    case.params["banned_ids"] = random_ids(rng, len(case.row), 4)


def allowed(rng, case: Case) -> None:
    case.params["allowed_ids"] = random_ids(rng, len(case.row), len(case.row))


def grammar(rng, case: Case) -> None:
    words = -(-len(case.row) // 32)
    case.mask = torch.from_numpy(rng.integers(-(2**31), 2**31, (1, words)).astype(np.int32))


def everything(rng, case: Case) -> None:
    for edit in (biased, banned, grammar):
        edit(rng, case)


EDITS = {edit.__name__: edit for edit in (biased, banned, allowed, grammar, everything)}


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


# ---- HeadTooShort, allow_inexact ----

FEW = torch.tensor([5.0, 4, 3, 2, 1, 0, -1, -2])
NAMED = re.compile(r"at least (\d+) logits")


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"banned_ids": [0]},
        {"banned_ids": [1, 2]},
        {"logit_bias": {0: -9.0}},
        {"logit_bias": {7: 3.0}},
        {"allowed_ids": [1, 3, 5, 6]},
    ],
    ids=repr,
)
@pytest.mark.parametrize("top_k", [2, 3, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_head_size_named_settles_top_k(edits, top_k, size):
    case = Case(FEW, size, {"top_k": top_k, **edits}, 0.4)
    told = case.head()
    if settled(told):
        return
    assert told.code == "head_too_short"
    named = NAMED.search(told.detail)
    if not edits:
        assert named is not None
        assert int(named[1]) == top_k
    if named is not None:  # when a size is told, it must do
        assert size < int(named[1]) <= len(FEW)
        assert settled(case.head(int(named[1]))), (told.detail, case.head(int(named[1])))


def test_a_head_size_is_never_named_beyond_the_vocabulary():
    told = Case(FEW, 2, {}, 0.1).head(logprobs=50)
    named = None if settled(told) else NAMED.search(told.detail)
    assert named is None or int(named[1]) <= len(FEW)


@pytest.mark.parametrize("options", [{}, {"logprobs": 3}, {"logprobs": 3, "logprobs_mode": "processed"}], ids=repr)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"top_k": 5},
        {"top_k": 5, "ties": "all"},
        {"top_p": 0.999},
        {"min_p": 1e-9},
        {"logit_bias": {7: 20.0}},
        {"logit_bias": {7: 9e29}},
        {"banned_ids": [0]},
        {"n": 20},
    ],
    ids=repr,
)
def test_allow_inexact_always_answers_from_the_head_and_says_so(params, temperature, options):
    request = {**params, "temperature": temperature}
    strict = Case(FEW, 3, request).head(**options)
    lenient = Case(FEW, 3, {**request, "allow_inexact": True}).head(**options)
    assert isinstance(lenient, K.RowResult)
    assert lenient.exact == (isinstance(strict, K.RowResult) and strict.exact) or options
    assert set(lenient.tokens) <= {0, 1, 2}
    numbers = [*lenient.logprobs, lenient.entropy, lenient.entropy_kept, lenient.kept_mass]
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert all(number is None or number <= 0 for number in lenient.logprobs)


def test_exact_is_false_only_where_it_was_allowed():
    rng = np.random.default_rng(8)
    told = Counter()
    for _ in range(300):
        case = random_case(rng, "normal", "none")
        strict = case.head()
        case.params["allow_inexact"] = True
        lenient = case.head()
        assert isinstance(lenient, K.RowResult)
        assert lenient.exact == settled(strict)
        if lenient.exact:
            assert lenient == strict
        told[lenient.exact] += 1
    assert min(told[True], told[False]) > 30


# ---- Log-probabilities beside the draw ----


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_top_logprobs_of_a_head_are_those_of_the_row(mode):
    rng = np.random.default_rng(9)
    settled_numbers = 0
    for _ in range(200):
        case = random_case(rng, "normal", "none")
        biased(rng, case)
        count = int(rng.integers(1, 4))
        told = case.head(logprobs=count, logprobs_mode=mode)
        if not settled(told):
            continue
        rows = K.DenseRows(case.row[None])
        truth = draw(rows, case.params, case.u, backend=BACKENDS["reference"], logprobs=count, logprobs_mode=mode)
        assert [top.token for top in told.top.top] == [top.token for top in truth.top.top]
        pairs = [*zip(told.top.top, truth.top.top, strict=True)]
        numbers = [(a.logprob, b.logprob) for a, b in pairs]
        numbers += zip(told.top.of_tokens, truth.top.of_tokens, strict=True)
        for a, b in numbers:
            assert a is None or a == pytest.approx(b, abs=TOLERANCE)
            settled_numbers += a is not None
    assert settled_numbers > 100


# ---- Malformed heads, and bad rows that fail alone ----


def make(ids=((0, 1),), logits=((2.0, 1.0),), log_z=(2.5,), vocab_size=8, **options) -> K.HeadRows:
    """A head of two tokens, well formed unless told otherwise; log Z is 2.5, of which the head itself holds 2.31."""
    tensors = {name: torch.as_tensor(value) for name, value in {"ids": ids, "logits": logits, "log_z": log_z}.items()}
    return K.HeadRows(**{**tensors, "vocab_size": vocab_size, **options})


MALFORMED = {
    "unsorted": ({"logits": [[1.0, 2.0]]}, HeadError, "head_logits[0][1]"),
    "ties by falling id": ({"ids": [[1, 0]], "logits": [[2.0, 2.0]], "log_z": [2.8]}, HeadError, "head_logits[0][1]"),
    "repeated id": ({"ids": [[3, 3]]}, HeadError, "head_ids[0]"),
    "id V": ({"ids": [[0, 8]]}, HeadError, "head_ids[0][1]"),
    "id -1": ({"ids": [[-1, 1]]}, HeadError, "head_ids[0][0]"),
    "log Z below the head": ({"log_z": [2.3]}, HeadError, "log_z[0]"),
    "log Z impossibly high": ({"log_z": [3.3]}, HeadError, "log_z[0]"),  # with six more at 1.0 it would be 3.27
    "log Z NaN": ({"log_z": [math.nan]}, HeadError, "log_z[0]"),
    "log Z infinite": ({"log_z": [INF]}, HeadError, "log_z[0]"),
    "log Z of a complete head, wrong": ({"vocab_size": 2}, HeadError, "log_z[0]"),
    "log Z of two columns": ({"log_z": [[2.5, 2.5]]}, ShapeError, "log_z"),
    "log Z of two rows": ({"log_z": [2.5, 2.5]}, ShapeError, "log_z"),
    "log Z of integers": ({"log_z": [3]}, DtypeError, "log_z"),
    "temperatures without log Z": ({"temperatures": (1.0, 0.5)}, ShapeError, "log_z"),
    "temperature 0": ({"temperatures": (0.0,)}, ParameterError, "log_z_temperatures[0]"),
    "temperature NaN": ({"temperatures": (math.nan,)}, ParameterError, "log_z_temperatures[0]"),
    "temperature infinite": ({"temperatures": (INF,)}, ParameterError, "log_z_temperatures[0]"),
    "more ids than logits": ({"ids": [[0, 1, 2]]}, ShapeError, "head_ids"),
    "flat ids": ({"ids": [0, 1]}, ShapeError, "head_ids"),
    "flat logits": ({"logits": [2.0, 1.0]}, ShapeError, "head_logits"),
    "float ids": ({"ids": [[0.0, 1.0]]}, DtypeError, "head_ids"),
    "integer logits": ({"logits": [[2, 1]]}, DtypeError, "head_logits"),
    "empty head": ({"ids": torch.zeros(1, 0).long(), "logits": torch.zeros(1, 0)}, ShapeError, "head_logits"),
    "V below N": ({"vocab_size": 1}, ParameterError, "vocab_size"),
    "count above V": ({"finite_count": torch.tensor([9])}, HeadError, "head_finite_count[0]"),
    "count below N": ({"finite_count": torch.tensor([1])}, HeadError, "head_finite_count[0]"),
    "count of floats": ({"finite_count": torch.tensor([8.0])}, DtypeError, "head_finite_count"),
    "mask too short": ({"vocab_size": 33, "mask": torch.zeros(1, 1, dtype=torch.int32)}, ShapeError, "mask"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_head_is_refused(name):
    fields, error, where = MALFORMED[name]
    with pytest.raises(error) as raised:
        K.sample(make(**fields))
    assert raised.value.field == where


def test_the_well_formed_head_is_answered():
    assert settled(K.sample(make(), K.check({"top_k": 2}))[0])


@pytest.mark.parametrize(
    ("logits", "code", "kind"),
    [
        ([math.nan, 1.0], "non_finite", "nan"),
        ([2.0, math.nan], "non_finite", "nan"),
        ([INF, 1.0], "non_finite", "posinf"),
        ([-INF, -INF], "all_masked", "all_neginf"),
    ],
)
def test_a_bad_head_fails_alone(logits, code, kind):
    rows = make(
        ids=[[0, 1]] * 3, logits=[[2.0, 1.0], logits, [2.0, 1.0]], log_z=[2.5, math.nan, 2.5]
    )  # the client's log Z of such a row is NaN too
    first, bad, last = K.sample(rows, K.check({"top_k": 2, "seed": 5}))
    assert first == last == K.sample(make(), K.check({"top_k": 2, "seed": 5}))[0]
    assert (bad.row, bad.code, bad.kind) == (1, code, kind)


def test_a_head_is_answered_the_same_in_any_batch_and_dtype():
    rng = np.random.default_rng(10)
    row = torch.from_numpy(normal(rng, 40)).float()
    one = Case(row, 10, {"top_p": 0.5}, None).head_rows()
    many = K.HeadRows(one.ids.repeat(9, 1).int(), one.logits.double().repeat(9, 1), one.log_z.repeat(9, 1), 40)
    values = K.check({"top_p": 0.5, "seed": 3})
    assert K.sample(many, values) == K.sample(one, values) * 9
