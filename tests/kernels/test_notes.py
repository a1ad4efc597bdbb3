"""The trace: what each step left, in numbers and in words, and which knob decided."""

import math

import numpy as np
import pytest
import torch
from golden import FOUR, both, one_thread  # noqa: F401  (a fixture)
from hypothesis import given
from hypothesis import strategies as st
from laws import all_values, names_of, rows
from rows_of import ask, law, logs, softmax64

import logitd_kernels as K
from logitd_kernels.sampling.order import order_of

LLAMA = order_of("llama.cpp")


def real() -> torch.Tensor:
    """A row as models give it: a few candidates, then a long tail."""
    rng = np.random.default_rng(8)
    row = rng.normal(-2, 2, 5000)
    row[rng.choice(5000, 8, replace=False)] = [14.0, 13.1, 12.5, 11, 10.2, 9.9, 9.1, 8.7]
    return torch.from_numpy(row).float()


def notes_of(params, backend="torch", row=None, **options):
    answer = ask(real() if row is None else row, params, backend, trace=True, **options)
    return answer, {note.split(" ")[0]: note for note in answer.notes}


def numbers(p) -> tuple[float, int, float]:
    return float(-np.sum(p[p > 0] * np.log(p[p > 0]))), int(np.count_nonzero(p)), float(p.max())


@both
def test_temperature_1_5_and_top_k_5_say_which_of_them_decided(backend):
    answer, notes = notes_of({"temperature": 1.5, "top_k": 5}, backend)
    warm = np.sort(softmax64(real(), 1.5))[::-1]
    five = warm[:5] / warm[:5].sum()
    cold = np.sort(softmax64(real()))[::-1][:5]
    told = [(step.transform, step.kept, step.entropy, step.kept_mass, step.max_probability) for step in answer.trace]
    assert [one[:2] for one in told] == [("temperature", 5000), ("top_k", 5)]
    assert told[0][2:] == pytest.approx((numbers(warm)[0], 1.0, warm[0]), rel=1e-6)
    assert told[1][2:] == pytest.approx((numbers(five)[0], warm[:5].sum(), five[0]), rel=1e-6)
    assert notes["top_k"] == (
        f"top_k 5 decided what could be drawn: 5 tokens are left with {warm[:5].sum():.4g} of the probability, "
        "5,000 without it."
    )
    at_one = numbers(cold / cold.sum())[0]
    assert notes["temperature"] == (
        "temperature 1.5 decided how likely each is, not which can be drawn (5 tokens are left): "
        f"the entropy drawn from is {numbers(five)[0]:.4g} nats, {at_one:.4g} without it."
    )


MASKED = [
    ({"top_k": 1, "top_p": 0.9}, "top_p"),
    ({"top_k": 1, "temperature": 1.5}, "temperature"),
    ({"min_p": 1e-30}, "min_p"),
    ({"top_k": 5000}, "top_k"),
    ({"top_k": 5001}, "top_k"),
    ({"top_k": 5, "top_p": 0.99999}, "top_p"),
    ({"top_k": 3, "epsilon_cutoff": 1e-4}, "epsilon_cutoff"),
    ({"top_k": 1, "xtc_probability": 1.0, "xtc_threshold": 0.0}, "xtc_probability"),
    ({"xtc_probability": 1.0, "xtc_threshold": 0.9}, "xtc_probability"),
    ({"top_k": 1, "typical_p": 0.5}, "typical_p"),
    ({"top_k": 1, "smoothing_factor": 0.5}, "smoothing_factor"),
    ({"top_k": 1, "dynatemp_range": 0.5}, "dynatemp_range"),
    ({"top_k": 1, "mirostat": 2}, "mirostat"),
    ({"top_k": 1, "adaptive_target": 0.5}, "adaptive_target"),
    ({"top_k": 1, "top_n_sigma": 1.0}, "top_n_sigma"),
]


@both
@pytest.mark.parametrize(("params", "masked"), MASKED)
def test_a_masked_knob_is_said_to_have_no_effect(params, masked, backend):
    answer, notes = notes_of(params, backend)
    assert notes[masked].startswith(f"{masked} {params[masked]:g} had no effect: without it the same ")
    plain = ask(real(), {name: value for name, value in params.items() if name != masked}, backend)
    assert (answer.tokens, answer.logprobs, answer.kept) == (plain.tokens, plain.logprobs, plain.kept)


@both
def test_two_that_do_the_same_mask_each_other(backend):
    """Each alone would leave the same token: neither is what decides."""
    _, notes = notes_of({"top_k": 1, "top_p": 1e-9}, backend)
    assert all("had no effect" in note for note in notes.values())
    assert all(note.endswith("; each of top_k 1 and top_p 1e-09 is enough.") for note in notes.values())


@both
def test_what_masks_a_knob_is_named(backend):
    _, notes = notes_of({"temperature": 1.5, "top_k": 1}, backend)
    assert notes["temperature"].endswith("with the same probabilities; top_k 1 decided.")


DECIDING = [
    ({"top_p": 0.5}, "top_p", "decided what could be drawn"),
    ({"min_p": 0.3, "top_k": 100}, "min_p", "decided what could be drawn"),
    ({"xtc_probability": 1.0}, "xtc_probability", "decided what could be drawn"),
    ({"typical_p": 0.2}, "typical_p", "decided what could be drawn"),
    ({"temperature": 0.7}, "temperature", "decided how likely each is"),
    ({"smoothing_factor": 0.3}, "smoothing_factor", "decided how likely each is"),
    ({"adaptive_target": 0.3, "top_k": 4}, "adaptive_target", "decided how likely each is"),
    ({"temperature": 2.5, "top_p": 0.9}, "temperature", "changed what could be drawn"),
]


@both
@pytest.mark.parametrize(("params", "knob", "said"), DECIDING)
def test_a_knob_that_decided_is_said_to(params, knob, said, backend):
    answer, notes = notes_of(params, backend)
    assert said in notes[knob]
    assert (f"{answer.kept:,} token" in notes[knob]) is True


@both
def test_at_temperature_0_nothing_else_has_an_effect(backend):
    answer, _ = notes_of({"temperature": 0, "top_k": 5, "min_p": 0.1, "xtc_probability": 1.0}, backend)
    assert answer.notes == [
        "temperature 0 took the largest logit. min_p 0.1, top_k 5, xtc_probability 1 had no effect: "
        "temperature 0 comes before all."
    ]
    assert [(step.transform, step.kept, step.entropy, step.max_probability) for step in answer.trace] == [
        ("temperature", 1, 0.0, 1.0)
    ]
    assert notes_of({"temperature": 0}, backend)[0].notes == ["temperature 0 took the largest logit."]


@both
def test_edits_and_guidance_are_traced_before_the_steps(backend):
    params = {"guidance_scale": 2, "logit_bias": {0: 1}, "presence_penalty": 1, "banned_ids": [3], "top_k": 2}
    answer, _ = notes_of(params, backend, logs(FOUR), output=[0], guide=logs((0.25,) * 4))
    assert [(step.transform, step.kept) for step in answer.trace] == [
        ("guidance", 4),
        ("logit_bias", 4),
        ("banned_ids", 3),
        ("presence_penalty", 3),
        ("temperature", 3),
        ("top_k", 2),
    ]
    squares = np.array(FOUR) ** 2  # s = 2 beside a uniform guide
    assert answer.trace[0].max_probability == pytest.approx(squares[3] / squares.sum())
    assert answer.trace[0].entropy == pytest.approx(numbers(squares / squares.sum())[0])
    left = squares[:3] * [math.e, 1, 1]
    assert answer.trace[2].entropy == pytest.approx(numbers(left / left.sum())[0])


@both
@given(data=st.data())
@law
def test_the_last_step_is_what_is_drawn_from_and_each_has_its_own_note(backend, data):
    row = data.draw(rows(sizes=(1, 9, 300)))
    values = data.draw(all_values(only=[*names_of("scale", "remap", "cut", "band", "reweigh"), "n", "seed"]))
    order = data.draw(st.sampled_from([LLAMA, order_of()]))
    answer = ask(row, values, backend, trace=True, order=order)
    last = answer.trace[-1]
    assert (last.entropy, last.kept, last.kept_mass) == (answer.entropy_kept, answer.kept, answer.kept_mass)
    assert last.max_probability >= math.exp(max(answer.logprobs)) - 1e-12
    checked = K.check(values)
    active = [one for one in order.steps if one.active(checked)]
    assert len(answer.notes) == (1 if order.is_greedy(checked) else len(active))
    assert all(step.seconds >= 0 for step in answer.trace)
    if not order.is_greedy(checked):
        assert {one.name for one in active} | {"temperature"} == {step.transform for step in answer.trace}
