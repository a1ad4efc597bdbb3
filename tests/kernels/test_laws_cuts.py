"""Truncations: what they keep is a prefix, or a band where that is said, and follows their parameter."""

import numpy as np
import pytest
import torch
from golden import one_thread  # noqa: F401  (a fixture)
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import OF_KIND, all_values, argmax, both, rows, values_of
from rows_of import INF, ask, draw_at, law, row_of, softmax64

import logitd_kernels as K

cuts = pytest.mark.parametrize("cut", OF_KIND["cut"], ids=lambda cut: cut.name)
ENDS = [1e-12, 1 - 2**-53, 1.0]


def values_for(data, transform):
    return {one.name: data.draw(values_of(one)) for one in transform.parameters}


@both
@cuts
@given(data=st.data())
@settings(law, max_examples=20)
def test_every_cut_keeps_the_argmax_and_is_a_prefix(cut, backend, data):
    row = data.draw(rows())
    answer = draw_at(row, ENDS, values_for(data, cut), backend)
    ordered = torch.sort(row, descending=True, stable=True).indices.tolist()
    assert answer.tokens[0] == argmax(row)
    assert 1 <= answer.kept <= int((row > -INF).sum())
    assert all(ordered.index(token) < answer.kept for token in answer.tokens[1:])


def test_what_may_drop_the_argmax_or_weigh_anew_is_known():
    assert [one.name for one in OF_KIND["band"]] == ["typical_p", "xtc"]
    assert [one.name for one in OF_KIND["reweigh"]] == ["adaptive_p"]


@both
@pytest.mark.parametrize("band", OF_KIND["band"], ids=lambda band: band.name)
@given(data=st.data())
@law
def test_every_band_keeps_neighbours_in_the_total_order(band, backend, data):
    row = data.draw(rows())
    answer = draw_at(row, ENDS, values_for(data, band), backend)
    ordered = torch.sort(row, descending=True, stable=True).indices.tolist()
    first = ordered.index(answer.tokens[0])
    assert 1 <= answer.kept <= int((row > -INF).sum()) - first
    assert all(first <= ordered.index(token) < first + answer.kept for token in answer.tokens[1:])


# By which parameter a cut is moved, and whether more tokens are kept as it grows.
GROWING = {
    "min_p": ("min_p", False),
    "top_n_sigma": ("top_n_sigma", True),
    "top_k": ("top_k", True),
    "top_p": ("top_p", True),
    "top_h": ("top_h", True),
    "top_a": ("top_a", False),
    "epsilon_cutoff": ("epsilon_cutoff", False),
    "eta_cutoff": ("eta_cutoff", False),
    "mirostat": ("mirostat_mu", True),  # the parameter itself is the version
}


def test_every_cut_has_a_direction():
    assert {cut.name for cut in OF_KIND["cut"]} == set(GROWING)


@both
@cuts
@given(data=st.data())
@settings(law, max_examples=20)
def test_what_is_kept_is_monotone_in_the_parameter(cut, backend, data):
    """Beside cuts of which more goes in where more comes out: what depends on a deviation may not do that."""
    name, grows = GROWING[cut.name]
    parameter = K.PARAMETERS[name]
    row = data.draw(rows())
    drawn = sorted(one for one in data.draw(st.lists(values_of(parameter), min_size=2, max_size=6)) if one is not None)
    values = [value for value in drawn if value not in (parameter.neutral, *cut.off)]
    own = {one.name for one in cut.parameters} - {"ties"}
    others = data.draw(all_values(only=["temperature", "ties", "min_p", "top_k", "top_p"], but=own))
    on = {"mirostat": data.draw(st.sampled_from([1, 2]))} if cut.name == "mirostat" else {}
    kept = [ask(row, {**others, **on, name: value}, backend).kept for value in values]
    assert kept == sorted(kept, reverse=not grows)
    assert all(count <= ask(row, others, backend).kept for count in kept)


# ---- The obvious formula in float64, on distributions p [V], descending, where no boundary is met ----


def until(p, mass):
    """The smallest prefix that reaches a mass."""
    return int((p.cumsum() < mass).sum()) + 1


def surprises(p):
    return -p * np.log(p)


def entropy(p):
    return float(surprises(p).sum())


def typical(p, mass):
    order = abs(-np.log(p) - entropy(p)).argsort(kind="stable")
    return sorted(order[: until(p[order], mass)].tolist())


OBVIOUS = {
    "top_k": ([1, 3, 70], lambda p, x, value: range(min(value, len(p)))),
    "top_p": ([0.1, 0.5, 0.95], lambda p, x, value: range(until(p, value))),
    "min_p": ([0.01, 0.2], lambda p, x, value: (p >= value * p[0]).nonzero()[0]),
    "top_n_sigma": ([0.5, 1.5], lambda p, x, value: (x >= x[0] - value * x.std()).nonzero()[0]),
    "top_h": ([0.2, 0.9], lambda p, x, value: range(max(1, int((surprises(p).cumsum() <= value * entropy(p)).sum())))),
    "top_a": ([0.3, 1.0], lambda p, x, value: (p >= value * p[0] ** 2).nonzero()[0]),
    "epsilon_cutoff": ([1e-4, 0.02, 0.9], lambda p, x, value: range(max(1, int((p >= value).sum())))),
    "eta_cutoff": (
        [1e-4, 0.02, 0.9],
        lambda p, x, value: range(max(1, int((p >= min(value, value**0.5 * np.exp(-entropy(p)))).sum()))),
    ),
    "typical_p": ([0.2, 0.6, 0.95], lambda p, x, value: typical(p, value)),
    "xtc": ([1.0], lambda p, x, value: range(max(0, int((p >= 0.1).sum()) - 1), len(p))),
}


def test_every_cut_and_band_has_its_obvious_formula():
    named = {one.name for one in (*OF_KIND["cut"], *OF_KIND["band"])}
    assert named - {"mirostat"} == set(OBVIOUS)  # test_golden_states.py


@both
@pytest.mark.parametrize("size", [9, 5000])
@pytest.mark.parametrize("kind", ["normal", "flat", "peaked"])
@pytest.mark.parametrize("name", OBVIOUS)
def test_kept_sets_are_those_of_the_obvious_formula(name, kind, size, backend):
    values, formula = OBVIOUS[name]
    row = row_of(kind, size, torch.float64)
    ordered = torch.sort(row, descending=True, stable=True)
    parameter = next(one for one in K.TRANSFORMS if one.name == name).parameter.name
    for value in values:
        for temperature in (0.7, 1.0, 2.5):
            expected = list(formula(softmax64(ordered.values, temperature), ordered.values.numpy(), value))
            answer = draw_at(row, ENDS, {parameter: value, "temperature": temperature}, backend)
            assert answer.kept == len(expected)
            assert answer.tokens[0] == ordered.indices[expected[0]]
            assert answer.kept_mass == pytest.approx(softmax64(ordered.values, temperature)[expected].sum(), rel=1e-9)
