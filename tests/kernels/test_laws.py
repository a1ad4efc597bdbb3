"""What holds for every transform of the registry, every row and every backend."""

import math

import pytest
import torch
from golden import one_thread  # noqa: F401  (a fixture)
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import all_values, both, histories, names_of, rows, same, values_of
from rows_of import INF, ask, distribution, law, row_of

import logitd_kernels as K

# ---- Neutral values ----

WITH_PARAMETER = [transform for transform in K.TRANSFORMS if transform.parameter is not None]
SHARED = {"penalty_window", "penalty_exempt_ids"}  # options of three transforms


@both
@pytest.mark.parametrize("transform", WITH_PARAMETER, ids=lambda one: one.name)
@given(data=st.data())
@settings(law, max_examples=8)
def test_a_neutral_value_is_the_identity_whatever_its_options(transform, backend, data):
    own = {one.name: one for one in transform.parameters if one.name not in SHARED}
    row, values = data.draw(rows()), data.draw(all_values(but=own))
    history = data.draw(histories(len(row)))
    off = data.draw(st.sampled_from([transform.parameter.neutral, *transform.off]))
    options = {name: data.draw(values_of(one)) for name, one in own.items() if one is not transform.parameter}
    at_rest = {**values, **options, transform.parameter.name: off}
    assert same(ask(row, at_rest, backend, **history), ask(row, values, backend, **history))


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


# ---- Greedy rows ----


@both
@given(data=st.data())
@law
def test_temperature_0_is_the_argmax_of_the_processed_logits_whatever_else_is_set(backend, data):
    row = data.draw(rows())
    history = data.draw(histories(len(row)))
    edits = data.draw(all_values(only=names_of("edit")))
    steps = data.draw(all_values(only=names_of("scale", "remap", "cut", "band", "reweigh"), but=["dynatemp_range"]))
    greedy = ask(row, {**edits, **steps, "temperature": 0}, backend, **history)
    first = ask(row, {**edits, "top_k": 1}, backend, **history)
    if isinstance(first, K.RowFault):
        assert same(greedy, first)
        return
    assert (greedy.tokens, greedy.logprobs) == (first.tokens, first.logprobs)
    assert (greedy.kept, greedy.kept_mass, greedy.entropy, greedy.entropy_kept) == (1, 1.0, 0.0, 0.0)


# ---- What is told ----


@both
@given(data=st.data())
@law
def test_a_trace_changes_no_answer(backend, data):
    row = data.draw(rows(sizes=(1, 9, 300)))
    values, history = data.draw(all_values()), data.draw(histories(len(row)))
    traced = ask(row, values, backend, trace=True, **history)
    plain = ask(row, values, backend, **history)
    if isinstance(plain, K.RowFault):
        assert same(traced, plain)
        return
    assert same(traced._replace(trace=None, notes=None), plain)
    last = traced.trace[-1]
    assert (last.kept, last.entropy) == (plain.kept, plain.entropy_kept)


EVEN = st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=12)


@both
@given(data=st.data())
@law
def test_a_row_reports_the_distribution_that_it_draws_from(backend, data):
    """Of rows and temperatures at which no token is too unlikely to be walked to."""
    row = torch.tensor(data.draw(EVEN))
    values = data.draw(all_values(but=["n", "temperature", "smoothing_factor", "dynatemp_range", "guidance_scale"]))
    history = data.draw(histories(len(row)))
    answer = ask(row, values, backend, **history)
    if isinstance(answer, K.RowFault):
        assert answer.code == "all_masked"
        return
    told = [p for p in distribution(row, values, backend, **history).values() if p > 1e-7]
    assert sum(told) == pytest.approx(1, abs=1e-6)
    assert len(told) <= answer.kept <= len(row)
    assert answer.entropy_kept == pytest.approx(-sum(p * math.log(p) for p in told), abs=1e-5)
    assert 0 < answer.kept_mass <= 1
    assert 0 <= answer.entropy <= math.log(len(row)) + 1e-12


# ---- Rows that differ in nothing that counts ----


@both
@given(data=st.data())
@law
def test_a_constant_added_to_the_row_changes_nothing(backend, data):
    """Eighths with a constant of at most 2^14 are exact in float32; a penalty would look at the sign."""
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
    assert (many.tokens[:5], many.logprobs[:5], many.state) == (few.tokens, few.logprobs, few.state)
    assert len(many.tokens) == len(many.logprobs) == 12


def test_the_registry_names_every_transform_once():
    names = [transform.name for transform in K.TRANSFORMS]
    assert len(set(names)) == len(names)
    kinds = list(dict.fromkeys(transform.kind for transform in K.TRANSFORMS))
    assert kinds == ["mix", "edit", "scale", "remap", "cut", "band", "reweigh"]
    assert all(transform.formula and transform.boundary and transform.source for transform in K.TRANSFORMS)
    own = {parameter.name for transform in K.TRANSFORMS for parameter in transform.parameters}
    assert own < set(K.PARAMETERS)
