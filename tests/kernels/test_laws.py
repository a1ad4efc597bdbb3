"""What holds for every transform of the registry, every row and every backend."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows_of import BACKENDS, FLOATS, INF, KINDS, ask, draw_at, law, row_of, threads

import logitd_kernels as K
from logitd_kernels.sampling.parameters import Bias, Choice, Flag, Number, Seed, TokenIds

both = pytest.mark.parametrize("backend", BACKENDS)
CUTS = [transform for transform in K.TRANSFORMS if transform.kind == "cut"]
EDITS = [transform for transform in K.TRANSFORMS if transform.kind == "edit"]
cuts = pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.name)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


# ---- Rows and values ----

SMALL = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, -INF]), st.floats(-100, 100, width=32))


@st.composite
def rows(draw, sizes=(1, 2, 9, 300, 4500)):
    """A row [V] with something to draw: a few chosen logits, or a seeded row of some kind."""
    if draw(st.booleans()):
        logits = draw(st.lists(SMALL, min_size=1, max_size=12).filter(lambda row: max(row) > -INF))
        return torch.tensor(logits, dtype=torch.float32)
    return row_of(draw(st.sampled_from(sorted(KINDS))), draw(st.sampled_from(sizes)), seed=draw(st.integers(0, 99)))


def values_of(parameter) -> st.SearchStrategy:
    """Every kind of legal value of a parameter, small ids and counts more often."""
    match parameter:
        case Number(integer=True):
            return st.integers(int(parameter.ge), 40)
        case Number():
            upper = 3.0 if parameter.le is None else float(parameter.le)
            lower = float(parameter.ge if parameter.gt is None else parameter.gt)
            return st.floats(lower, upper, exclude_min=parameter.gt is not None)
        case Choice():
            return st.sampled_from(parameter.choices)
        case TokenIds():
            return st.none() | st.lists(st.integers(0, 0), max_size=2)
        case Bias():
            return st.none() | st.dictionaries(st.just(0), st.floats(-9, 9) | st.just(-INF), max_size=1)
        case Seed():
            return st.integers(0, 2**64 - 1)
        case Flag():
            return st.booleans()
    raise AssertionError(f"no values for {parameter!r}: a new kind of parameter needs a line here")


def all_values(but=()) -> st.SearchStrategy:
    """Values for any of the parameters, always with a seed, so that two answers can be compared."""
    optional = {name: values_of(parameter) for name, parameter in K.PARAMETERS.items() if name not in ("seed", *but)}
    return st.fixed_dictionaries({"seed": values_of(K.PARAMETERS["seed"])}, optional=optional)


def same(one, other):
    """Whether two answers are the same to the last bit."""
    return repr(one) == repr(other) and one == other


# ---- Neutral values ----


@both
@pytest.mark.parametrize("name", [name for name in K.PARAMETERS if name != "seed"])
@given(data=st.data())
@law
def test_a_neutral_value_is_the_identity(name, backend, data):
    row, values = data.draw(rows()), data.draw(all_values(but=[name]))
    neutral = {name: K.PARAMETERS[name].neutral}
    assert same(ask(row, {**values, **neutral}, backend), ask(row, values, backend))


def test_the_neutral_value_is_what_a_row_gets_that_names_none():
    assert dict(K.check({})) == {name: parameter.neutral for name, parameter in K.PARAMETERS.items()}


def test_the_neutral_seed_draws_one_that_replays_the_row():
    row = row_of("normal", 300)[None]
    for neutral in (None, -1):
        told = [K.sample(K.DenseRows(row), K.check({"seed": neutral, "n": 20}))[0] for _ in range(20)]
        assert len({answer.seed for answer in told}) == 20
        assert all(0 <= answer.seed < 2**53 for answer in told)
        for answer in told:
            assert same(K.sample(K.DenseRows(row), K.check({"seed": answer.seed, "n": 20}))[0], answer)


@both
@given(row=rows(), values=all_values(but=["top_k"]))
@law
def test_the_other_off_value_of_top_k(backend, row, values):
    assert same(ask(row, {**values, "top_k": -1}, backend), ask(row, values, backend))


# ---- Cuts ----


def argmax(row) -> int:
    return int((row == row.max()).nonzero()[0])


@both
@cuts
@given(data=st.data())
@law
def test_every_cut_keeps_the_argmax_and_is_a_prefix(cut, backend, data):
    row, value = data.draw(rows()), data.draw(values_of(cut.parameter))
    options = {option.name: data.draw(values_of(option)) for option in cut.options}
    answer = draw_at(row, [1e-12, 1 - 2**-53, 1.0], {cut.name: value, **options}, backend)
    finite = int((row > -INF).sum())
    assert answer.tokens[0] == argmax(row)
    assert 1 <= answer.kept <= finite
    ordered = torch.sort(row, descending=True, stable=True).indices.tolist()
    assert ordered.index(answer.tokens[1]) < answer.kept
    assert ordered.index(answer.tokens[2]) < answer.kept


GROWING = {"top_k": 1, "top_p": 1, "min_p": -1}  # whether more tokens are kept as the value grows


def test_every_cut_has_a_direction():
    assert {cut.name for cut in CUTS} == set(GROWING)


@both
@cuts
@given(data=st.data())
@law
def test_what_is_kept_is_monotone_in_the_parameter(cut, backend, data):
    row = data.draw(rows())
    values = sorted(data.draw(st.lists(values_of(cut.parameter), min_size=2, max_size=6)))
    values = [value for value in values if value != cut.parameter.neutral and value >= 0]
    others = data.draw(all_values(but=[cut.name, "banned_ids", "allowed_ids", "logit_bias"]))
    kept = [ask(row, {**others, cut.name: value}, backend).kept for value in values]
    assert kept == sorted(kept, reverse=GROWING[cut.name] < 0)
    assert all(count <= ask(row, others, backend).kept for count in kept)


@both
@given(data=st.data())
@law
def test_a_row_reports_the_distribution_that_it_draws_from(backend, data):
    """Probabilities of all kept tokens add to 1, and its entropies and masses are those of its logits."""
    row = data.draw(rows(sizes=(1, 2, 9, 60)))
    values = data.draw(all_values(but=["n", "banned_ids", "allowed_ids", "logit_bias"]))
    temperature = values.get("temperature", 1.0)
    answer = ask(row, values, backend)
    if temperature == 0:
        assert (answer.kept, answer.kept_mass, answer.entropy, answer.entropy_kept) == (1, 1.0, 0.0, 0.0)
        return
    ordered = torch.sort(row.double(), descending=True, stable=True)
    whole = torch.softmax((ordered.values - ordered.values[0]) / temperature, 0)
    assert answer.entropy == pytest.approx(float(torch.special.entr(whole).sum()), rel=1e-9, abs=1e-12)
    assert answer.kept_mass == pytest.approx(float(whole[: answer.kept].sum()), rel=1e-9)
    part = whole[: answer.kept] / whole[: answer.kept].sum()
    assert answer.entropy_kept == pytest.approx(float(torch.special.entr(part).sum()), rel=1e-9, abs=1e-12)
    ends = torch.cumsum(part, 0)
    middles = [float(end - p / 2) for end, p in zip(ends, part, strict=True) if p > 1e-9]
    drawn = draw_at(row, middles, values, backend)
    assert drawn.tokens == ordered.indices[: len(middles)].tolist()
    assert sum(map(math.exp, drawn.logprobs)) == pytest.approx(1, abs=1e-7)
    assert max(drawn.logprobs) <= 0


# ---- A row alone, in a batch, and on any number of threads ----

PARAMS = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 40},
    {"top_k": 1500},
    {"top_k": 5, "ties": "all"},
    {"min_p": 0.05, "top_p": 0.5},
    {"top_p": 0.9999},
    {"banned_ids": [0, 1]},
    {"logit_bias": {3: 2.5}},
    {"allowed_ids": list(range(0, 300, 3))},
]


def batch_of(size: int, count: int, dtype=torch.float32) -> tuple[torch.Tensor, list]:
    """Return rows [count, size] of every kind, a bad one among them, and parameters for each."""
    kinds = sorted(KINDS)
    logits = torch.stack([row_of(kinds[place % len(kinds)], size, dtype, place) for place in range(count)])
    logits[count // 3, size // 2] = math.nan
    return logits, [K.check({"seed": place, "n": 5, **PARAMS[place % len(PARAMS)]}) for place in range(count)]


def told(answers):
    """Return answers without the row number that a fault carries."""
    return [repr(answer).split("RowFault(row=")[-1].split(", ", 1)[-1] for answer in answers]


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [300, 5000])
def test_a_row_has_the_same_bits_alone_and_anywhere_in_a_batch(size, dtype, backend):
    logits, params = batch_of(size, 64, FLOATS[dtype])
    chosen = BACKENDS[backend]
    together = told(K.sample(K.DenseRows(logits), params, backend=chosen))
    alone = [K.sample(K.DenseRows(logits[[i]]), [params[i]], backend=chosen)[0] for i in range(64)]
    assert told(alone) == together
    backwards = K.sample(K.DenseRows(logits.flip(0)), params[::-1], backend=chosen)
    assert told(backwards) == together[::-1]
    halves = [K.sample(K.DenseRows(logits[i : i + 32]), params[i : i + 32], backend=chosen) for i in (0, 32)]
    assert told(halves[0] + halves[1]) == together


@both
@pytest.mark.parametrize("params", PARAMS)
def test_one_row_gives_the_same_bits_at_all_64_places(params, backend):
    rows, value = K.DenseRows(row_of("normal", 5000).expand(64, -1)), K.check({"seed": 3, "n": 3, **params})
    answers = K.sample(rows, value, backend=BACKENDS[backend])
    assert len(answers) == 64
    assert all(same(answer, answers[0]) for answer in answers)


@both
@pytest.mark.parametrize("size", [1500, 70_000])
def test_a_row_has_the_same_bits_on_any_number_of_threads(size, backend):
    logits, params = batch_of(size, 12)
    answers = {}
    for count in (1, 2, 8):
        with threads(count):
            answers[count] = told(K.sample(K.DenseRows(logits), params, backend=BACKENDS[backend]))
    assert answers[1] == answers[2] == answers[8]


@pytest.mark.parametrize("kind", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(kind):
    logits = torch.stack([row_of(name, 70_001, torch.float64) for name in KINDS])
    temperatures = [0.5 + place for place in range(len(logits))]
    whole = K.softmax(K.DenseRows(logits), temperatures, kind)
    for count in (1, 2, 8):
        with threads(count):
            alone = [K.softmax(K.DenseRows(r[None]), [t], kind) for r, t in zip(logits, temperatures, strict=True)]
        assert torch.equal(torch.cat([one.log_z for one in alone]), whole.log_z)
        assert torch.equal(torch.cat([one.entropy for one in alone]), whole.entropy)
        if kind != "logsumexp":
            assert torch.equal(torch.cat([one.values for one in alone]), whole.values)


# ---- Inputs ----


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_inputs_are_never_written_to(dtype, backend):
    logits, params = batch_of(300, 24, FLOATS[dtype])
    mask = torch.full((24, 10), 0x55555555, dtype=torch.int32)
    before = logits.clone(), mask.clone(), repr(params)
    K.sample(K.DenseRows(logits, mask), params, backend=BACKENDS[backend], logprobs=3, trace=True)
    K.softmax(K.DenseRows(logits, mask), [0.5] * 24)
    assert torch.equal(logits.view(torch.uint8), before[0].view(torch.uint8))
    assert torch.equal(mask, before[1])
    assert repr(params) == before[2]


@both
@pytest.mark.parametrize("size", [7, 300, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wider_dtype_with_the_same_numbers_gives_the_same_bits(kind, dtype, size, backend):
    row = row_of(kind, size, FLOATS[dtype])
    params = [
        K.check({"seed": 9, "n": 5, **values}) for values in PARAMS if not size < 300 or "allowed_ids" not in values
    ]
    batches = [K.DenseRows(row.to(wide).expand(len(params), -1)) for wide in (row.dtype, torch.float32, torch.float64)]
    narrow, *wider = (told(K.sample(batch, params, backend=BACKENDS[backend], logprobs=3)) for batch in batches)
    assert all(answers == narrow for answers in wider)


@both
@pytest.mark.parametrize("layout", ["transposed", "every other", "reversed rows", "expanded"])
def test_strides_change_nothing(layout, backend):
    plain = torch.stack([row_of("normal", 500, seed=seed) for seed in range(6)])
    views = {
        "transposed": plain.T.contiguous().T,
        "every other": torch.stack([plain, plain + 1], 2).view(6, 1000)[:, ::2],
        "reversed rows": plain.flip(0).contiguous().flip(0),
        "expanded": plain,
    }
    view = plain[:1].expand(6, -1) if layout == "expanded" else views[layout]
    params = [K.check({"seed": seed, "n": 5, "top_p": 0.9}) for seed in range(6)]
    answers = K.sample(K.DenseRows(view), params, backend=BACKENDS[backend])
    assert answers == K.sample(K.DenseRows(view.clone().contiguous()), params, backend=BACKENDS[backend])


@both
@given(data=st.data())
@law
def test_a_constant_added_to_the_row_changes_nothing(backend, data):
    """Eighths with a constant of at most 2^14 are exact in float32."""
    eighths = st.one_of(st.integers(-80, 80).map(lambda x: x / 8), st.just(-INF))
    logits = data.draw(st.lists(eighths, min_size=1, max_size=12).filter(lambda row: max(row) > -INF))
    row = torch.tensor(logits * data.draw(st.sampled_from([1, 500])))
    constant = data.draw(st.integers(-(2**14), 2**14))
    values = data.draw(all_values(but=["logit_bias", "min_p"]))
    assert same(ask(row + constant, values, backend), ask(row, values, backend))


@both
@pytest.mark.parametrize("constant", [-16384.0, -3.0, 0.125, 16384.0])
@pytest.mark.parametrize("min_p", [0.9, 0.5, 0.1, 0.01])
def test_a_constant_added_to_the_row_does_not_move_min_p(min_p, constant, backend):
    row = torch.arange(-40, 40) / 8
    shifted = ask(row + constant, {"min_p": min_p, "n": 20}, backend)
    assert same(shifted, ask(row, {"min_p": min_p, "n": 20}, backend))


@both
@given(row=rows(), values=all_values(but=["allowed_ids"]), more=st.sampled_from([1, 31, 1024, 6000]))
@law
def test_a_vocabulary_padded_with_masked_logits_answers_the_same(backend, row, values, more):
    one, other = ask(row, values, backend), ask(torch.cat([row, torch.full((more,), -INF)]), values, backend)
    if isinstance(one, K.RowFault):
        assert one == other
        return
    assert (other.tokens, other.kept) == (one.tokens, one.kept)
    assert other.logprobs == pytest.approx(one.logprobs, rel=1e-12, abs=1e-14)
    assert other.entropy == pytest.approx(one.entropy, rel=1e-12, abs=1e-14)


# ---- Several draws ----


@both
@given(row=rows(), values=all_values(but=["n"]))
@law
def test_the_first_draws_of_many_are_those_of_few(backend, row, values):
    many, few = ask(row, {**values, "n": 12}, backend), ask(row, {**values, "n": 5}, backend)
    if isinstance(many, K.RowFault):
        assert same(many, few)
        return
    assert (many.tokens[:5], many.logprobs[:5]) == (few.tokens, few.logprobs)
    assert len(many.tokens) == len(many.logprobs) == 12


def test_the_registry_names_every_transform_once():
    names = [transform.name for transform in K.TRANSFORMS]
    assert len(set(names)) == len(names)
    assert [transform.kind for transform in K.TRANSFORMS] == ["edit"] * len(EDITS) + ["scale"] + ["cut"] * len(CUTS)
    assert all(transform.formula and transform.boundary and transform.source for transform in K.TRANSFORMS)
    own = {parameter.name for t in K.TRANSFORMS for parameter in (t.parameter, *t.options) if parameter}
    assert own < set(K.PARAMETERS)
