"""Worked numbers: penalties over the tokens so far, with their scopes, windows and exemptions.

Ids of public reports are known-faults rows.
"""

import math

import numpy as np
import pytest
from golden import MASKED, both, one_thread  # noqa: F401  (a fixture)
from rows_of import ask, distribution, left_of

import logitd_kernels as K
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.order import order_of

LLAMA = order_of("llama.cpp")
EVEN = (0.2,) * 5
EVERYTHING = {"frequency_scope": "both", "presence_scope": "both"}
DOWN = {"frequency_penalty": 5, "presence_penalty": 5, **EVERYTHING}

# ---- llama.cpp's tables: (ids so far, parameters, what is left) ----

PENALTIES = [
    ([0], {"repetition_penalty": 50}, (0, 0.25, 0.25, 0.25, 0.25)),
    ([0, 1, 2], {"repetition_penalty": 50}, (0, 0, 0, 0.5, 0.5)),
    ([0, 1, 2, 0, 0], {"repetition_penalty": 50}, (0, 0, 0, 0.5, 0.5)),
    ([0], DOWN, (0.000011, 0.249997, 0.249997, 0.249997, 0.249997)),
    ([0, 1, 2], DOWN, (0.000023, 0.000023, 0.000023, 0.499966, 0.499966)),
    ([0, 1, 2, 0, 0], DOWN, (0.000000, 0.000023, 0.000023, 0.499977, 0.499977)),
]


@both
@pytest.mark.parametrize(("ids", "params", "left"), PENALTIES)
def test_penalties(ids, params, left, backend):
    for where in ({"prompt": ids}, {"output": ids}, {"prompt": ids[:1], "output": ids[1:]}):
        assert left_of(EVEN, params, backend, order=LLAMA, **where) == pytest.approx(left, abs=1e-6)


# ---- Scopes, windows, exemptions ----

SCOPES = [
    ("both", 0, [2, 2, 3]),
    ("prompt", 0, [2]),
    ("output", 0, [2, 3]),
    ("both", 2, [2, 3]),  # 64: the window is the caller's
    ("both", 1, [3]),
    ("output", 1, [3]),
    ("prompt", 1, [2]),
    ("both", 99, [2, 2, 3]),
]


@both
@pytest.mark.parametrize(("scope", "window", "counted"), SCOPES)
def test_what_a_penalty_counts(scope, window, counted, backend):
    tokens = {"prompt": [2], "output": [2, 3]}
    for name, cost in (
        ("frequency", 1.5 * np.bincount(counted, minlength=5)),
        ("presence", None),
        ("repetition", None),
    ):
        if name == "presence":
            cost = 1.5 * (np.bincount(counted, minlength=5) > 0)
        if name == "repetition":
            cost = 0.5 * (np.bincount(counted, minlength=5) > 0)  # of a logit of 1, divided by 2
        params = {f"{name}_penalty": 2.0 if name == "repetition" else 1.5, f"{name}_scope": scope}
        masses = np.exp(1 - cost)
        told = distribution([1.0] * 5, {**params, "penalty_window": window}, backend, **tokens)
        assert [told[token] for token in range(5)] == pytest.approx((masses / masses.sum()).tolist(), abs=1e-9)


@both
def test_presence_and_frequency_count_the_output_and_repetition_both_unless_told(backend):
    tokens = {"prompt": [0], "output": [1]}
    for name, hit in (("presence", {1}), ("frequency", {1}), ("repetition", {0, 1})):
        told = distribution([1.0] * 3, {f"{name}_penalty": 2.0}, backend, **tokens)
        assert {token for token, p in told.items() if p < max(told.values())} == hit


@both
def test_exempt_ids_are_touched_by_no_penalty(backend):
    params = {"repetition_penalty": 2, "presence_penalty": 1, "frequency_penalty": 1, "penalty_exempt_ids": [1]}
    told = distribution([1.0] * 3, params, backend, output=[0, 1, 1])
    masses = np.exp([1 / 2 - 2, 1, 1])
    assert [told[token] for token in range(3)] == pytest.approx((masses / masses.sum()).tolist(), abs=1e-9)


@both
def test_penalties_multiply_first_in_one_dialect_and_last_in_another(backend):
    """1/1.2 - 1 = -0.1667 against (1 - 1)/1.2 = 0, beside a logit of 0."""
    params = {"repetition_penalty": 1.2, "frequency_penalty": 0.5}
    for dialect, logit in (("vllm", 1 / 1.2 - 1), ("sglang", 0.0)):
        told = distribution([1.0, 0.0], params, backend, output=[0, 0], order=order_of(dialect))
        assert told[0] == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-9)


@both
@pytest.mark.parametrize("logit", [2.0, -2.0, 0.0, MASKED])
def test_a_repetition_penalty_by_the_sign_of_the_logit(logit, backend):
    told = distribution([logit, 0.5, 0.25], {"repetition_penalty": 4}, backend, prompt=[0, 0])
    after = {2.0: 0.5, -2.0: -8.0, 0.0: 0.0, MASKED: MASKED}[logit]
    masses = np.exp([after, 0.5, 0.25])
    assert [told.get(token, 0) for token in range(3)] == pytest.approx((masses / masses.sum()).tolist(), abs=1e-9)


@both
def test_penalties_act_before_the_argmax(backend):  # 65
    assert ask([1.0, 0.9], {"temperature": 0, "presence_penalty": 0.2}, backend, output=[0]).tokens == [1]
    dry = {"temperature": 0, "dry_multiplier": 1, "dry_allowed_length": 1}
    assert ask([1.0, 0.9], dry, backend, prompt=[1, 0, 1]).tokens == [1]
    assert ask([1.0, 0.9], {"temperature": 0, "xtc_probability": 1, "xtc_threshold": 0.1}, backend).tokens == [0]


@pytest.mark.parametrize(
    ("name", "value"),
    [("repetition_penalty", 0), ("repetition_penalty", -1), ("dry_base", 0.5), ("penalty_window", -1)],
)
def test_penalties_out_of_bounds_are_refused(name, value):  # 62
    with pytest.raises(ParameterError) as caught:
        K.check({name: value})
    assert caught.value.field == name


@both
@pytest.mark.parametrize("name", ["penalty_exempt_ids", "dry_breaker_ids", "stop_ids", "bad_words"])
def test_ids_outside_the_vocabulary_are_refused_by_name(name, backend):  # 59
    on = {"repetition_penalty": 2, "dry_multiplier": 1, "min_tokens": 2, "presence_penalty": 1, "frequency_penalty": 1}
    with pytest.raises(ParameterError, match="vocabulary") as caught:
        ask([0.0] * 10, {**on, name: [[3, 10]] if name == "bad_words" else [3, 10]}, backend, output=[0])
    assert (caught.value.field.split("[")[0], caught.value.row) == (name, 0)


@both
def test_a_history_of_padding_is_none(backend):
    params = {"repetition_penalty": 2, "dry_multiplier": 1, "presence_penalty": 1, "no_repeat_ngram_size": 1}
    padded = ask([1.0, 2, 3], {**params, "n": 20}, backend, prompt=[-1, -1], output=[-1])
    assert padded == ask([1.0, 2, 3], {**params, "n": 20}, backend) == ask([1.0, 2, 3], {"n": 20}, backend)
    some = ask([1.0, 2, 3], {**params, "n": 20}, backend, prompt=[-1, 2, -1, 0], output=[1, -1])
    assert some == ask([1.0, 2, 3], {**params, "n": 20}, backend, prompt=[2, 0], output=[1])
