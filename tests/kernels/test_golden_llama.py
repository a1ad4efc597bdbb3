"""Worked numbers: what llama.cpp's own sampler tests expect, as distributions in, distributions out.

Where a number of theirs lies on a boundary that rounding decides, it is moved off it, and the test says so.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from golden import FOUR, both, one_thread  # noqa: F401  (a fixture)
from rows_of import BACKENDS, ask, distribution, left_of, logs

import logitd_kernels as K
from logitd_kernels.sampling.order import order_of

LLAMA = order_of("llama.cpp")
DOWN = FOUR[::-1]
XTC = {"xtc_probability": 0.99, "seed": 2}  # whose uniform is below 0.99
TABLE = {
    # name: (probabilities, parameters, what is left of them)
    "temp 1": (FOUR, {"temperature": 1}, FOUR),
    "temp 0": (FOUR, {"temperature": 0}, (0, 0, 0, 1)),
    "temp_ext 1, range 0": (FOUR, {"temperature": 1, "dynatemp_range": 0, "dynatemp_exponent": 1}, FOUR),
    "temp_ext 0, range 0": (FOUR, {"temperature": 0, "dynatemp_range": 0}, (0, 0, 0, 1)),
    "top_k 1": (FOUR, {"top_k": 1}, (0, 0, 0, 1)),
    "top_k 3": (FOUR, {"top_k": 3}, (0, 0.22222, 0.33333, 0.44444)),
    "top_k 4": (FOUR, {"top_k": 4}, FOUR),
    "top_k 0": (FOUR, {"top_k": 0}, FOUR),
    "top_p 0, here the least there is": (FOUR, {"top_p": 5e-324}, (0, 0, 0, 1)),  # 0 is refused
    "top_p 0.7, off the boundary": (FOUR, {"top_p": 0.7 - 1e-9}, (0, 0, 0.428571, 0.571429)),
    "top_p 0.8": (FOUR, {"top_p": 0.8}, (0, 0.22222, 0.33333, 0.44444)),
    "top_p 1": (FOUR, {"top_p": 1}, FOUR),
    "min_p 0": (FOUR, {"min_p": 0}, FOUR),
    "min_p 0.24": (FOUR, {"min_p": 0.24}, FOUR),
    "min_p 0.26": (FOUR, {"min_p": 0.26}, (0, 2 / 9, 3 / 9, 4 / 9)),
    "min_p 0.49": (FOUR, {"min_p": 0.49}, (0, 2 / 9, 3 / 9, 4 / 9)),
    "min_p 0.51": (FOUR, {"min_p": 0.51}, (0, 0, 3 / 7, 4 / 7)),
    "min_p 0.74": (FOUR, {"min_p": 0.74}, (0, 0, 3 / 7, 4 / 7)),
    "min_p 0.76": (FOUR, {"min_p": 0.76}, (0, 0, 0, 1)),
    "min_p 1": (FOUR, {"min_p": 1}, (0, 0, 0, 1)),  # 1.05 is refused
    "xtc 0.09": (DOWN, {**XTC, "xtc_threshold": 0.09}, (0, 0, 0, 1)),
    "xtc 0.19": (DOWN, {**XTC, "xtc_threshold": 0.19}, (0, 0, 2 / 3, 1 / 3)),
    "xtc 0.29": (DOWN, {**XTC, "xtc_threshold": 0.29}, (0, 3 / 6, 2 / 6, 1 / 6)),
    "xtc 0.39": (DOWN, {**XTC, "xtc_threshold": 0.39}, DOWN),
    "typical 0.5, peaked": ((0.97, 0.01, 0.01, 0.01), {"typical_p": 0.5}, (1, 0, 0, 0)),
    "typical 0.5, the three of them": ((0.4, 0.2, 0.2, 0.2), {"typical_p": 0.5}, (0, 1 / 3, 1 / 3, 1 / 3)),
    "top_n_sigma 1": (FOUR, {"top_n_sigma": 1}, (0, 0, 0.428571, 0.571429)),
    "top_n_sigma 0": (FOUR, {"top_n_sigma": 0}, FOUR),
    "top_n_sigma 3": (FOUR, {"top_n_sigma": 3}, FOUR),
}


@both
@pytest.mark.parametrize("order", [LLAMA, order_of()], ids=["llama.cpp", "vllm"])
@pytest.mark.parametrize("name", TABLE)
def test_one_step(name, order, backend):
    probabilities, params, left = TABLE[name]
    assert left_of(probabilities, params, backend, order=order) == pytest.approx(left, abs=5e-6)
    assert ask(logs(probabilities), params, backend, order=order).kept == np.count_nonzero(left)


@both
@pytest.mark.parametrize("refused", [{"top_p": 0}, {"min_p": 1.05}, {"temperature": -0.1}])
def test_what_llama_cpp_takes_and_is_refused_here(refused, backend):
    with pytest.raises(K.sampling.parameters.ParameterError):
        ask(logs(FOUR), refused, backend)


# ---- Their queue: k, p and m in every order, on 10,000 tokens whose probability grows with their id ----

SIZE = 10_000
RAMP = torch.arange(SIZE, dtype=torch.float64).log()  # the first has none
STEPS = {"k": ("top_k", 100), "p": ("top_p", 0.8), "m": ("min_p", 0.1)}


def expected(queue: str) -> int:
    """How many of the largest are left after each step of a queue: on integers, so that nothing rounds."""
    left = SIZE - 1
    for step in queue:
        masses = range(SIZE - 1, SIZE - 1 - left, -1)
        if step == "k":
            left = min(left, 100)
        elif step == "m":
            left = sum(10 * mass >= SIZE - 1 for mass in masses)
        else:
            whole = sum(masses)
            left = 1 + sum(10 * through < 8 * whole for through in itertools.accumulate(masses))
    return left


QUEUES = ["".join(queue) for size in (1, 2, 3) for queue in itertools.permutations("kpm", size)]


@both
@pytest.mark.parametrize("queue", QUEUES)
def test_a_queue_leaves_the_largest(queue, backend):
    order = order_of("llama.cpp", tuple(STEPS[step][0] for step in queue))
    params = dict(STEPS[step] for step in queue)
    answer = ask(RAMP, {**params, "n": 200}, backend, order=order)
    assert answer.kept == expected(queue)
    assert SIZE - answer.kept <= min(answer.tokens) <= max(answer.tokens) < SIZE
    share = sum(range(SIZE - answer.kept, SIZE)) / sum(range(SIZE))
    assert answer.kept_mass == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize(
    ("params", "kept"),
    [({"top_p": 0.0003}, 2), ({"min_p": 9997.9 / 9999}, 2), ({"top_k": 100}, 100), ({"min_p": 0.1}, 9000)],
)
def test_single_steps_of_the_queue(params, kept):
    for backend in BACKENDS:
        assert ask(RAMP, params, backend, order=LLAMA).kept == kept


def test_the_orders_of_the_queue_do_differ():
    assert {queue: expected(queue) for queue in ("kpm", "pkm", "pmk", "mpk", "kmp")} == {
        "kpm": 80,
        "pkm": 100,
        "pmk": 100,
        "mpk": 100,
        "kmp": 80,
    }


# ---- The temperature comes last ----


@both
def test_the_temperature_acts_on_what_the_cuts_left(backend):
    params = {"temperature": 2, "top_p": 0.9}
    assert distribution([3, 1, 0], params, backend, order=LLAMA) == pytest.approx({0: 0.7311, 1: 0.2689}, abs=5e-5)
    assert len(distribution([3, 1, 0], params, backend)) == 3


@both
def test_dynatemp_takes_the_entropy_of_what_is_left(backend):
    """Of four tokens H/ln 4 is 0.92322, so T = 1.42322; after top_k 2 H/ln 2 is 0.98523."""
    whole = ask(logs(FOUR), {"dynatemp_range": 0.5, "n": 1}, backend, trace=True)
    temperature = 1.4232197
    powers = np.array(FOUR) ** (1 / temperature)
    assert left_of(FOUR, {"dynatemp_range": 0.5}, backend) == pytest.approx((powers / powers.sum()).tolist(), abs=1e-7)
    assert whole.trace[-1].transform == "dynatemp"
    share = -(3 / 7 * math.log(3 / 7) + 4 / 7 * math.log(4 / 7)) / math.log(2)
    two = np.array([0.3, 0.4]) ** (1 / (0.5 + share))
    left = left_of(FOUR, {"dynatemp_range": 0.5, "top_k": 2}, backend, order=LLAMA)
    assert left == pytest.approx([0, 0, *(two / two.sum())], abs=1e-9)
