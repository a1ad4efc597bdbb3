"""Worked numbers: what Hugging Face's own tests of logits processors expect.

Theirs keep all ties with the last token kept, and at least `min_tokens_to_keep`; where that decides, the test says so.
"""

import numpy as np
import pytest
import torch
from golden import FOUR, MASKED, both, one_thread  # noqa: F401  (a fixture)
from rows_of import ask, distribution, left_of, logs, softmax64

from logitd_kernels.sampling.order import order_of

HF = order_of("hf")
RAMP = softmax64(np.arange(10.0) - 5)
STEEP = softmax64(100 * (np.arange(10.0) - 5))
PEAKED, FLATTER = (0.97, 0.01, 0.01, 0.01), (0.4, 0.2, 0.2, 0.2)


def kept_of(probabilities, kept):
    """What is left of a distribution [V] where these ids are kept."""
    part = [p if token in kept else 0.0 for token, p in enumerate(probabilities)]
    return [p / sum(part) for p in part]


TABLE = {
    # name: (probabilities, parameters, the ids kept)
    "top_p 0.8, off the boundary": ((0.3, 0.1, 0.1, 0.5), {"top_p": 0.8 - 1e-9}, {0, 3}),
    "top_p 0.8, the other row": ((0.15, 0.3, 0.3, 0.25), {"top_p": 0.8}, {1, 2, 3}),
    "top_p 0.9, ramp": (RAMP, {"top_p": 0.9}, {7, 8, 9}),
    "top_p 0.9, steep: theirs has min_tokens_to_keep 2": (STEEP, {"top_p": 0.9}, {9}),
    "top_k 3, ramp": (RAMP, {"top_k": 3}, {7, 8, 9}),
    "top_k 3, ties: the lowest ids": ((0.1,) * 10, {"top_k": 3}, {0, 1, 2}),
    "top_k 3, ties as theirs": ((0.1,) * 10, {"top_k": 3, "ties": "all"}, set(range(10))),
    "min_p 0.05 of 0.9": ((0.9, 0.0274, 0.047, 0.0256), {"min_p": 0.05}, {0, 2}),
    "min_p 0.05 of 0.3": ((0.15, 0.3, 0.3, 0.25), {"min_p": 0.05}, {0, 1, 2, 3}),
    "min_p 0.05 of 0.97": (PEAKED, {"min_p": 0.05}, {0}),
    "min_p 0.9, ramp: theirs has min_tokens_to_keep 2": (RAMP, {"min_p": 0.9}, {9}),
    "typical_p 0.5, peaked": (PEAKED, {"typical_p": 0.5}, {0}),
    "typical_p 0.5, flatter": (FLATTER, {"typical_p": 0.5}, {1, 2, 3}),
    "epsilon_cutoff 0.1, first row": ((0.87, 0.099, 0.001, 0.03), {"epsilon_cutoff": 0.1}, {0}),
    "epsilon_cutoff 0.1, second row": ((0.4, 0.299, 0.101, 0.2), {"epsilon_cutoff": 0.1}, {0, 1, 2, 3}),
    "epsilon_cutoff 0.05, ramp": (RAMP, {"epsilon_cutoff": 0.05}, {7, 8, 9}),
    "epsilon_cutoff 0.05, steep: theirs has min_tokens_to_keep 2": (STEEP, {"epsilon_cutoff": 0.05}, {9}),
    "eta_cutoff 0.0625, first row": ((0, 0.1, 0.8, 0.1), {"eta_cutoff": 0.0625}, {1, 2, 3}),
    "eta_cutoff 0.0625, second row": ((0.01, 0.04, 0.9, 0.05), {"eta_cutoff": 0.0625}, {2}),
    "top_h 0.3": (PEAKED, {"top_h": 0.3}, {0}),
    "top_h 0.7": (FOUR[::-1], {"top_h": 0.7}, {0, 1}),
    "top_h 1": ((0.25,) * 4, {"top_h": 1.0}, {0, 1, 2, 3}),
    "top_h just below 1": ((0.25,) * 4, {"top_h": 1 - 1e-9}, {0, 1, 2}),
    "top_h 0.4": ((0.75, 0.25, 0, 0), {"top_h": 0.4}, {0}),
}


@both
@pytest.mark.parametrize("name", TABLE)
def test_one_warper(name, backend):
    probabilities, params, kept = TABLE[name]
    expected = kept_of(probabilities, kept)
    assert left_of(probabilities, params, backend, order=HF) == pytest.approx(expected, abs=1e-7)
    answer = ask(logs(probabilities), params, backend, order=HF)
    assert answer.kept == len(kept)
    assert answer.kept_mass == pytest.approx(sum(probabilities[token] for token in kept), abs=1e-9)


@both
def test_min_p_of_a_logit_a_hair_below_its_floor(backend):
    """Their strict comparison in probabilities and the inclusive one in logits differ on the boundary alone."""
    assert ask(logs((0.5, 0.25, 0.25)), {"min_p": 0.5 + 1e-12}, backend).kept == 1
    assert ask(logs((0.5, 0.25, 0.25)), {"min_p": 0.5 - 1e-12}, backend).kept == 3


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("typical_p", [0.99, 0.9999999, 1 - 2**-53])
def test_typical_p_of_a_flat_half_precision_row_stays_inside_it(typical_p, dtype, backend):  # 47
    row = torch.zeros(50_000, dtype=dtype)
    assert ask(row, {"typical_p": typical_p}, backend).kept == 50_000  # all are as typical


# ---- Penalties and bans ----


@both
def test_repetition_penalty_of_2(backend):
    logits = [-0.1, 0.1, 0.4, 0.0, -0.3]
    expected = {2: 0.2, 1: 0.05, 3: 0.0, 0: -0.2, 4: -0.3}  # the last did not come
    told = distribution(logits, {"repetition_penalty": 2}, backend, prompt=[0, 1], output=[2, 3, 3], order=HF)
    masses = {token: np.exp(logit) for token, logit in expected.items()}
    assert told == pytest.approx({token: mass / sum(masses.values()) for token, mass in masses.items()}, abs=1e-9)


def banned(size, params, backend, **tokens):
    return set(range(size)) - set(distribution([0.0] * size, params, backend, order=HF, **tokens))


NGRAMS = [([1, 1, 2, 1], 2, {1, 2}), ([0, 1, 0, 1], 2, {0}), ([1, 1, 2, 1], 3, set()), ([0, 1, 0, 1], 3, {0})]


@both
@pytest.mark.parametrize(("sequence", "size", "expected"), NGRAMS)
def test_no_repeat_ngram(sequence, size, expected, backend):
    for cut in range(5):  # prompt and output are one sequence
        tokens = {"prompt": sequence[:cut], "output": sequence[cut:]}
        assert banned(3, {"no_repeat_ngram_size": size}, backend, **tokens) == expected
    assert banned(3, {"no_repeat_ngram_size": size}, backend) == set()


@both
@pytest.mark.parametrize(("sequence", "expected"), [([0, 1, 3, 1], {0, 1, 3, 4}), ([0, 1, 0, 1], {0, 1, 2, 4})])
def test_bad_words(sequence, expected, backend):
    words = {"bad_words": [[1], [4], [1, 0], [0, 1, 2], [1, 3, 1, 3]]}
    assert banned(5, words, backend, prompt=sequence) == expected
    assert banned(5, words, backend, prompt=sequence[:2], output=sequence[2:]) == expected
    assert banned(5, words, backend) == {1, 4}  # what has no beginning to look for


@both
@pytest.mark.parametrize(("generated", "expected"), [(0, {1, 3}), (1, {1, 3}), (2, set()), (3, set())])
def test_min_tokens(generated, expected, backend):
    params = {"min_tokens": 2, "stop_ids": [1, 3]}
    assert banned(5, params, backend, prompt=[0, 0, 0], output=[2] * generated) == expected
    assert banned(5, {**params, "step": generated}, backend, prompt=[0, 0, 0]) == expected
    assert banned(5, {**params, "step": 9}, backend, output=[2] * generated) == expected  # what is sent says more


# ---- Classifier-free guidance ----


@both
def test_guidance_of_1_5(backend):
    expected = np.array([-1.0958531, -0.5958531, -1.3458531])
    given = ask([1.0, 1, 1], {"guidance_scale": 1.5}, backend, guide=[1, 0, 1.5], logprobs=3, logprobs_mode="processed")
    tops = {top.token: top.logprob for top in given.top.top}
    assert [tops[token] - tops[1] for token in range(3)] == pytest.approx((expected - expected[1]).tolist(), abs=1e-7)
    assert sum(np.exp(list(tops.values()))) == pytest.approx(1)


@both
def test_guidance_changes_the_sign_that_penalties_look_at(backend):
    """After guidance a logit is -1.0958531 and is multiplied; without it, it is 1 and would be divided."""
    told = distribution(
        [1.0, 1, 1], {"guidance_scale": 1.5, "repetition_penalty": 2}, backend, guide=[1, 0, 1.5], output=[0]
    )
    masses = np.exp([-2 * 1.0958531, -0.5958531, -1.3458531])
    assert [told[token] for token in range(3)] == pytest.approx((masses / masses.sum()).tolist(), abs=1e-7)


@both
def test_guidance_and_masked_tokens(backend):
    """What the row masks stays masked; where the guide alone masks, the row's own log-probability stands."""
    told = distribution([0.0, MASKED, 0, 0], {"guidance_scale": 2}, backend, guide=[0.0, 0, MASKED, 0])
    given, free = np.log(1 / 3), np.log(1 / 3)
    masses = np.exp([free + 2 * (given - free), given, free + 2 * (given - free)])
    assert told == pytest.approx(dict(zip([0, 2, 3], masses / masses.sum(), strict=True)), abs=1e-9)
    assert ask([0.0, 1.0], {"guidance_scale": 1}, backend, guide=[5.0, 0]) == ask([0.0, 1.0], {}, backend)
    assert ask([0.0, 1.0], {"guidance_scale": 3}, backend) == ask([0.0, 1.0], {}, backend)  # nothing to guide by


@both
@pytest.mark.parametrize(
    ("guide", "code"), [([0, np.nan], "non_finite"), ([np.inf, 0], "non_finite"), ([MASKED, MASKED], "all_masked")]
)
def test_a_bad_guide_fails_the_row_and_says_which(guide, code, backend):
    fault = ask([0.0, 1.0], {"guidance_scale": 2}, backend, guide=guide)
    assert fault.code == code
    assert "guidance logit" in fault.detail
