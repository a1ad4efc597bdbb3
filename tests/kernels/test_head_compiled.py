"""The compiled chain on heads: the same answers, bit for bit, as the formulas, and the same refusals."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from head_cases import CUTS, DTYPES, FEW, INF, ROWS, Case, draw, random_case

import logitd_kernels as K
from logitd_kernels import hot_heads
from logitd_kernels.errors import KernelError
from logitd_kernels.hot_heads import ELSEWHERE, OK, HeadBatch
from logitd_kernels.select import cpu

pytestmark = pytest.mark.skipif(cpu.why_not() is not None, reason="this install has no compiled kernels")

FORMULAS = K.pick("torch")
STATUSES = {name: code for name, code in vars(hot_heads).items() if isinstance(code, int)}


class Compiled:
    """The compiled backend, and how its rows were answered: `seen` holds a status of HEAD_ANSWER each."""

    def __init__(self):
        self.seen: list[int] = []
        self.backend = dataclasses.replace(K.pick("cpu"), heads=self._heads)

    def _heads(self, batch: HeadBatch):
        answers = cpu.sample_heads(batch)
        self.seen += answers["status"].tolist()
        return answers


def told(head: K.HeadRows, values, backend: K.Backend):
    """Return the answers, or the error in words."""
    try:
        with np.errstate(all="ignore"):  # rows beyond float64 warn in numpy
            return K.sample(head, values, backend=backend)
    except KernelError as error:
        return f"{type(error).__name__} {error}"


def alone(case: Case, backend: K.Backend):
    """Return the answer to a case, or the error in words."""
    try:
        with np.errstate(all="ignore"):
            return draw(case.head_rows(), case.params, case.u, backend=backend)
    except KernelError as error:
        return f"{type(error).__name__} {error}"


def agree(case: Case, compiled: Compiled) -> None:
    """Ask for one case both ways; equality of results is equality of their bits."""
    assert alone(case, compiled.backend) == alone(case, FORMULAS), case


# ---- Draw by draw against the formulas ----


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", ROWS)
def test_every_field_has_the_bits_of_the_formulas(kind, cut):
    rng = np.random.default_rng([list(ROWS).index(kind), list(CUTS).index(cut), 21])
    compiled = Compiled()
    for _ in range(25):
        agree(random_case(rng, kind, cut), compiled)
    assert len(compiled.seen) == 25
    assert compiled.seen.count(OK) >= 5


def test_every_way_to_be_answered_is_met_and_worded_as_by_the_formulas():
    rng = np.random.default_rng(22)
    compiled = Compiled()
    for number in range(300):
        case = random_case(rng, list(ROWS)[number % len(ROWS)], list(CUTS)[number % len(CUTS)])
        if number % 9 == 0:
            case.size = min(2, len(case.row))
            case.params = {"top_k": min(5, len(case.row)), "ties": ["all", "exact"][number % 2]}
        agree(case, compiled)
    for top_p in np.linspace(0.3, 0.95, 60):  # now and then the cut, not the token, is between the tail's ends
        agree(Case(FEW, 6, {"top_p": float(top_p), "temperature": 1.5}, 0.01), compiled)
    agree(Case(torch.full((8,), math.nan), 3, {}, 0.5), compiled)
    assert set(compiled.seen) == set(STATUSES.values())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 63, 64, 65, 500, 1024, 4096])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_size_and_dtype(size, dtype):
    rng = np.random.default_rng([size, DTYPES.index(dtype)])
    compiled = Compiled()
    for scale in (0.01, 2.0, 10.0):
        row = torch.from_numpy(rng.normal(0, scale, 6000)).to(dtype)
        for params in (
            {},
            {"top_k": 3},
            {"top_k": size, "top_p": 0.9},
            {"top_p": 0.3, "temperature": 0.6},
            {"min_p": 0.2},
        ):
            temperatures = ((1.0,), (1.0, params.get("temperature", 1.0)))[len(compiled.seen) % 2]
            agree(Case(row, size, params, float(rng.uniform()), temperatures=temperatures), compiled)
    assert OK in compiled.seen


@pytest.mark.parametrize("temperature", [0.0, 1e-310, 1e-300, 1e-6, 0.05, 1.0, 20.0, 1e30, 1e300])
def test_any_temperature(temperature):
    rng = np.random.default_rng(23)
    compiled = Compiled()
    for kind in ROWS:
        for sent in ((1.0,), (0.5, 1.0, 2.0), (max(temperature, 0.01),), (1.0, 1.0), (1.0, 0.3, 1.0)):
            case = random_case(rng, kind, list(CUTS)[rng.integers(len(CUTS))])
            case.params["temperature"] = temperature
            case.temperatures = sent
            agree(case, compiled)
    assert compiled.seen.count(OK) > len(ROWS)


@pytest.mark.parametrize(
    "params",
    [
        {"top_k": -1, "top_p": 1.0, "min_p": 0.0},
        {"top_k": 1},
        {"top_k": 10**30},
        {"top_p": 5e-324},
        {"top_p": math.nextafter(1.0, 0.0)},
        {"min_p": 1.0},
        {"min_p": 5e-324},
        {"top_k": 3, "ties": "all", "min_p": 0.01, "top_p": 0.5},
        {"stream": 2**32 - 1, "step": 2**32 - 1, "seed": 2**64 - 1},
        {"allow_inexact": True},
        {"allow_inexact": True, "top_p": 0.999999},
    ],
    ids=repr,
)
def test_parameters_at_their_ends(params):
    rng = np.random.default_rng(24)
    compiled = Compiled()
    for kind in ROWS:
        for u in (None, 2.0**-54, 0.5, 1 - 2.0**-53, 1.0):
            agree(dataclasses.replace(random_case(rng, kind, "none"), params=params, u=u), compiled)
    assert len(compiled.seen) == 5 * len(ROWS)


HARD_ROWS = {
    "signed zeros": torch.tensor([0.0, -0.0, 0.0, -0.0, -1.0]),
    "wider than float64": torch.tensor([1e308, 1e308, -1e308, -1.5e308], dtype=torch.float64),
    "wider than float64, far apart": torch.tensor([1.7e308, -1.7e308, -1.7e308], dtype=torch.float64),
    "denormal": torch.tensor([3e-45, 1e-45, 0.0, -1e-45]),
    "float32's ends": torch.tensor([3e38, 3e38, -3e38, -3e38]),
    "masses that vanish": torch.tensor([0.0, -745.0, -745.1, -746.0, -800.0]),
}


@pytest.mark.parametrize("name", HARD_ROWS)
def test_hard_rows(name):
    compiled = Compiled()
    for size in range(1, len(HARD_ROWS[name]) + 1):
        for temperature in (0.0, 1e-300, 0.5, 1.0, 1e300):
            for u in (1e-9, 0.6, 1.0):
                agree(Case(HARD_ROWS[name], size, {"temperature": temperature}, u), compiled)
    assert OK in compiled.seen


# ---- Batches ----


def batch_of(count: int, size: int = 40, vocab: int = 300) -> tuple[K.HeadRows, list]:
    """Return heads of rows of every kind, some bad, and parameters for each."""
    rng = np.random.default_rng(count)
    kinds = list(ROWS.values())
    dense = torch.stack([torch.from_numpy(kinds[i % len(kinds)](rng, vocab)).float() for i in range(count)])
    ordered, ids = torch.sort(dense, descending=True, stable=True)
    log_z = torch.stack([torch.logsumexp(ordered.double() / t, 1) for t in (1.0, 0.7)], 1)
    logits = ordered[:, :size].clone()
    for place, bad in ((3, math.nan), (11, INF), (14, -INF)):
        if place < count:
            logits[place, 0 if bad > 0 else slice(None)] = bad
    cuts = list(CUTS.values())
    values = [
        K.check({"seed": i, "temperature": (0.0, 0.7, 1.0, 1.4)[i % 4], **cuts[i % len(cuts)](rng, size)})
        for i in range(count)
    ]
    finite = (dense > -INF).sum(1)
    return K.HeadRows(ids[:, :size], logits, log_z, vocab, (1.0, 0.7), finite), values


@pytest.mark.parametrize("count", [1, 2, 17, 1000])
def test_a_batch_answers_as_its_rows_do(count):
    head, values = batch_of(count)
    compiled = Compiled()
    answers = K.sample(head, values, backend=compiled.backend)
    assert answers == K.sample(head, values, backend=FORMULAS)
    assert len(compiled.seen) == count
    for index in range(0, count, 37):
        [answer] = K.sample(_row(head, index), values[index], backend=compiled.backend)
        assert (dataclasses.replace(answer, row=index) if isinstance(answer, K.RowFault) else answer) == answers[index]


def _row(head: K.HeadRows, index: int) -> K.HeadRows:
    own = slice(index, index + 1)
    counts = None if head.finite_count is None else head.finite_count[own]
    return K.HeadRows(head.ids[own], head.logits[own], head.log_z[own], head.vocab_size, head.temperatures, counts)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers, each followed by one that must not be read."""
    wide = torch.full((*tensor.shape, 2), -7).to(tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strides_and_integer_widths_change_nothing(dtype, index_dtype):
    head, values = batch_of(60)
    logits = head.logits.to(torch.bfloat16).to(dtype)  # numbers that all four hold
    order = torch.argsort(logits.double().nan_to_num(), dim=1, descending=True, stable=True)
    plain = {"ids": head.ids, "logits": logits, "log_z": head.log_z, "finite_count": head.finite_count}
    plain["ids"] = _ties_by_id(torch.gather(head.ids, 1, order), torch.gather(logits, 1, order))
    plain["logits"] = torch.gather(logits, 1, order)
    plain["log_z"] = torch.logsumexp(torch.stack([plain["logits"].double() / t for t in (1.0, 0.7)], 2), 1) + 0.01
    plain["finite_count"] = torch.full((60,), 300)
    packed = K.HeadRows(**plain, vocab_size=300, temperatures=(1.0, 0.7))
    spread = {name: strided(t.to(index_dtype) if t.dtype == torch.int64 else t) for name, t in plain.items()}
    compiled = Compiled()
    answers = told(K.HeadRows(**spread, vocab_size=300, temperatures=(1.0, 0.7)), values, compiled.backend)
    assert answers == told(packed, values, FORMULAS)
    assert compiled.seen.count(OK) > 10


def _ties_by_id(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    pairs = [np.lexsort((own, -x)) for own, x in zip(ids.numpy(), logits.double().numpy(), strict=True)]
    return torch.gather(ids, 1, torch.from_numpy(np.stack(pairs)))


def test_what_the_chain_does_not_cover_goes_through_the_formulas_beside_the_rest():
    head, values = batch_of(40)
    mixed = [
        K.check({**one, **extra})
        for one, extra in zip(values, [{}, {"n": 3}, {"banned_ids": [1]}, {}] * 10, strict=True)
    ]
    compiled = Compiled()
    assert K.sample(head, mixed, backend=compiled.backend) == K.sample(head, mixed, backend=FORMULAS)
    assert len(compiled.seen) == 20
    assert K.sample(head, mixed[0], backend=compiled.backend, logprobs=2) == K.sample(head, mixed[0], logprobs=2)
    assert len(compiled.seen) == 20


def test_long_heads_and_many_temperatures_are_left_to_the_formulas():
    compiled = Compiled()
    row = torch.randn(140_000, generator=torch.Generator().manual_seed(1))
    agree(Case(row, 140_000, {"top_p": 0.5}, 0.5), compiled)
    agree(Case(FEW, 3, {"top_k": 2}, 0.5, temperatures=tuple(0.5 + i / 10 for i in range(65))), compiled)
    assert compiled.seen == []


def test_an_empty_batch():
    empty = K.HeadRows(torch.zeros(0, 4).long(), torch.zeros(0, 4), torch.zeros(0), 10)
    assert K.sample(empty, backend=Compiled().backend) == []


def test_a_row_without_a_seed_draws_one():
    case = Case(FEW, 4, {"top_k": 2})
    answers = [K.sample(case.head_rows(), K.check({"top_k": 2}), backend=Compiled().backend)[0] for _ in range(40)]
    assert len({answer.seed for answer in answers}) == 40
    assert {token for answer in answers for token in answer.tokens} == {0, 1}
    replayed = K.sample(case.head_rows(), K.check({"top_k": 2, "seed": answers[0].seed}), backend=FORMULAS)[0]
    assert replayed == answers[0]


# ---- Heads that contradict themselves ----


@pytest.mark.parametrize("broken", ["log_z", "count", "high"])
def test_a_head_that_contradicts_itself_is_refused_in_any_place(broken):
    head, values = batch_of(20)
    fields = {"log_z": head.log_z.clone(), "finite_count": head.finite_count.clone()}
    if broken == "count":
        fields["finite_count"][15] = 5
    else:
        fields["log_z"][15, 1] = -50.0 if broken == "log_z" else 600.0
    wrong = dataclasses.replace(head, **fields)
    compiled = Compiled()
    answers = told(wrong, values, compiled.backend)
    assert answers.startswith("HeadError")
    assert answers == told(wrong, values, FORMULAS)
    assert compiled.seen[15] == ELSEWHERE
