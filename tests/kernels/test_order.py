"""Dialects and the caller's own order: what they change, and what is refused."""

import pytest
import torch
from golden import FOUR, both, one_thread  # noqa: F401  (a fixture)
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_of import ask, distribution, law, left_of, logs, row_of

import logitd_kernels as K
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.order import DEFAULT, DIALECTS, order_of

NAMES = [transform.name for transform in K.TRANSFORMS]
dialects = pytest.mark.parametrize("dialect", DIALECTS)
STAGES = {"mix": 0, "edit": 1, "scale": 2, "remap": 2, "cut": 2, "band": 2, "reweigh": 3}
STAGE = {transform.name: STAGES[transform.kind] for transform in K.TRANSFORMS}


@dialects
def test_a_dialect_has_every_transform_once_and_its_own_in_their_order(dialect):
    names = order_of(dialect).names
    assert sorted(names) == sorted(NAMES)
    assert [name for name in names if name in DIALECTS[dialect]] == list(DIALECTS[dialect])
    assert [STAGE[name] for name in names] == sorted(STAGE[name] for name in names)


def test_the_default_is_the_registry_in_its_order():
    assert list(DEFAULT.names) == NAMES
    assert order_of("vllm") is DEFAULT  # compiled chains are asked for by it


# ---- Worked numbers ----


@both
def test_k_before_p_and_p_before_k(backend):  # 40
    params = {"top_k": 2, "top_p": 0.5}
    assert left_of(FOUR, params, backend) == [0, 0, 0, 1]
    own = order_of("vllm", ("top_p", "top_k"))
    assert left_of(FOUR, params, backend, order=own) == pytest.approx([0, 0, 3 / 7, 4 / 7])


@both
@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("vllm", {0: 0.6285, 1: 0.2312, 2: 0.1402}),
        ("hf", {0: 0.6285, 1: 0.2312, 2: 0.1402}),
        ("sglang", {0: 0.6285, 1: 0.2312, 2: 0.1402}),
        ("exllama", {0: 0.6285, 1: 0.2312, 2: 0.1402}),
        ("llama.cpp", {0: 0.7311, 1: 0.2689}),
    ],
)
def test_the_temperature_comes_first_or_last(dialect, expected, backend):
    params = {"temperature": 2, "top_p": 0.9}
    assert distribution([3, 1, 0], params, backend, order=order_of(dialect)) == pytest.approx(expected, abs=6e-5)


@both
def test_min_p_sees_the_temperature_or_not(backend):
    """e^-1 is below 0.5, e^(-1/2) is not; without a temperature before it min_p keeps one token."""
    params = {"temperature": 2, "min_p": 0.5}
    assert len(distribution([2, 1, 0], params, backend)) == 2
    assert len(distribution([2, 1, 0], params, backend, order=order_of("vllm", ("min_p", "temperature")))) == 1


@both
def test_bias_and_penalty_do_not_commute(backend):
    """(1 + 1)/2 against 1/2 + 1, beside a logit of 1."""
    params = {"logit_bias": {0: 1}, "repetition_penalty": 2}
    told = distribution([1.0, 1.0], params, backend, output=[0])
    assert told[0] == pytest.approx(0.5)
    own = order_of("vllm", ("repetition_penalty", "logit_bias"))
    told = distribution([1.0, 1.0], params, backend, output=[0], order=own)
    assert told[0] == pytest.approx(1 / (1 + 2.718281828459045**-0.5))


# ---- Laws ----


@st.composite
def asked(draw):
    """Values for steps that an order can move, none of them at rest."""
    names = draw(st.sets(st.sampled_from(sorted(ACTIVE)), min_size=1))
    return {name: value for one in names for name, value in ACTIVE[one].items()}


ACTIVE = {
    "temperature": {"temperature": 0.7},
    "dynatemp": {"dynatemp_range": 0.4},
    "smoothing": {"smoothing_factor": 0.3, "smoothing_curve": 1.5},
    "min_p": {"min_p": 0.02},
    "top_n_sigma": {"top_n_sigma": 2.5},
    "top_k": {"top_k": 30},
    "typical_p": {"typical_p": 0.9},
    "top_p": {"top_p": 0.9},
    "top_h": {"top_h": 0.8},
    "top_a": {"top_a": 0.2},
    "epsilon_cutoff": {"epsilon_cutoff": 0.003},
    "eta_cutoff": {"eta_cutoff": 0.01},
    "mirostat": {"mirostat": 2, "mirostat_mu": 4.0},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    "adaptive_p": {"adaptive_target": 0.2},
}


def test_every_step_is_moved_by_these_laws():
    assert set(ACTIVE) == {name for name in NAMES if STAGE[name] >= 2}


@both
@dialects
@given(values=asked(), seed=st.integers(0, 50))
@settings(law, max_examples=12)
def test_the_order_of_the_dialect_spelt_out_is_the_dialect(dialect, backend, values, seed):
    row = row_of("normal", 300, seed=seed)
    plain, spelt = order_of(dialect), order_of(dialect, order_of(dialect).names)
    other = order_of("vllm", order_of(dialect).names)
    assert plain == spelt == other
    told = [repr(ask(row, {**values, "n": 3}, backend, order=order)) for order in (plain, spelt, other)]
    assert told[0] == told[1] == told[2]


@both
@given(names=st.permutations(NAMES), values=asked(), seed=st.integers(0, 50), trace=st.booleans())
@law
def test_any_permutation_is_refused_or_followed(backend, names, values, seed, trace):
    stages = [STAGE[name] for name in names]
    if stages != sorted(stages):
        with pytest.raises(ParameterError, match="has to come before") as caught:
            order_of("vllm", tuple(names))
        assert caught.value.field == "order"
    order = order_of("vllm", tuple(sorted(names, key=STAGE.get)))
    answer = ask(row_of("normal", 300, seed=seed), {**values, "n": 3}, backend, order=order, trace=trace)
    assert order.names == tuple(sorted(names, key=STAGE.get))
    assert 1 <= answer.kept <= 300
    assert all(0 <= token < 300 for token in answer.tokens)
    if trace:
        acted = [step.transform for step in answer.trace]
        assert acted == [name for name in order.names if name in acted]
        assert {one.name for one in order.active(K.check(values))} <= {*acted}


@given(names=st.lists(st.sampled_from([name for name in NAMES if STAGE[name] == 2]), unique=True, min_size=2))
@law
def test_a_few_names_in_any_order_are_followed_and_the_others_stay(names):
    order = order_of("vllm", tuple(names))
    assert [name for name in order.names if name in names] == names
    assert sorted(order.names) == sorted(NAMES)
    assert order.names[:12] == DEFAULT.names[:12]
    assert order.names[-1] == "adaptive_p"


@pytest.mark.parametrize(
    ("dialect", "own", "field", "says"),
    [
        ("mlx", (), "dialect", "llama.cpp"),
        ("vllm", ("top_k", "top_q"), "order[1]", "unknown"),
        ("vllm", ("top_k", "top_p", "top_k"), "order[2]", "second"),
        ("vllm", ("temperature", "logit_bias"), "order", "single logits"),
        ("vllm", ("logit_bias", "guidance"), "order", "mixes"),
        ("vllm", ("adaptive_p", "top_k"), "order", "weighs"),
    ],
)
def test_orders_that_cannot_be(dialect, own, field, says):
    with pytest.raises(ParameterError, match=says) as caught:
        order_of(dialect, own)
    assert caught.value.field == field


def test_a_mask_of_one_row_is_seen_in_every_dialect():
    mask = torch.tensor([[0b0101]], dtype=torch.int32)
    for dialect in DIALECTS:
        assert set(ask(logs(FOUR), {"n": 50}, mask=mask, order=order_of(dialect)).tokens) == {0, 2}
