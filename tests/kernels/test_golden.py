"""Worked numbers: softmax, log-softmax, log Z and entropy (40 digits).

Ids of public reports are known-faults rows.
"""

import math

import pytest
import torch
from golden import MASKED, both, one_thread, rows  # noqa: F401  (a fixture)
from rows_of import BACKENDS, FLOATS, ask, distribution, logs, softmax64

import logitd_kernels as K
from logitd_kernels.softmax import KINDS

# ---- Softmax, log-softmax, log Z and entropy (40-digit arithmetic) ----

THREE = ((0.0900305731704, 0.244728471055, 0.665240955775), 0.83239558184)
DISTRIBUTIONS = {
    # name: (logits, T, probabilities, log-probabilities or None for ln p, log Z at T, entropy)
    "1 2 3": ([1, 2, 3], 1, THREE[0], None, 3.4076059644444, THREE[1]),
    "1000": ([1000, 1000, 999], 1, (0.422318798252,) * 2 + (0.155362403497,), None, 1000.8619948041, 1.01735720756),
    "-1000": ([-1000, -1001, -1002], 1, THREE[0][::-1], None, -999.59239403556, THREE[1]),
    "1e5": ([1e5, 1e5 - 1, 1e5 - 2], 1, THREE[0][::-1], None, 100000.40760596, THREE[1]),
    "one masked": ([0, MASKED, 0], 1, (0.5, 0, 0.5), None, 0.69314718056, 0.69314718056),
    "all but one masked": ([MASKED, 5, MASKED], 1, (0, 1, 0), None, 5, 0),
    "T = 0.01": ([10, 9.99], 0.01, (0.73105857863, 0.26894142137), None, 1000.313261687518, 0.582203108888),
    "T = 1e-4": ([10, 9.99], 1e-4, (1, 3.72007597603e-44), (0, -100), 100000, 3.72e-42),
    "T = 2": ([3, 1, 0], 2, (0.628531719212, 0.231223897622, 0.140244383166), None, 1.9643687841, 0.905959256479),
    "T = 1e30": ([3, 1, 0], 1e30, (1 / 3,) * 3, None, 1.0986122886681098, 1.0986122886681098),
    "±88": ([88, -88], 1, (1, math.exp(-176)), (0, -176), 88, 6.45e-75),
    "3.4e38": ([3.4e38, 0], 1, (1, 0), (0, -3.4e38), 3.4e38, 0),
    "-3.4e38": ([-3.4e38] * 2, 1, (0.5, 0.5), None, -3.4e38, 0.69314718056),
    "a word of one": ([7], 1, (1,), None, 7, 0),
    "#17 [0, -inf]": ([0, MASKED], 1, (1, 0), None, 0, 0),
    "#17 [0, 0, -inf]": ([0, 0, MASKED], 1, (0.5, 0.5, 0), None, 0.69314718056, 0.69314718056),
    "#74 T = 1": ([1, 2, 3], 1, THREE[0], (-2.40760596444, -1.40760596444, -0.407605964444), 3.4076059644444, THREE[1]),
    "#74 T = 2": (
        [1, 2, 3],
        2,
        (0.18632372322585, 0.3071958857185, 0.50648039105565),
        (-1.6802696706417, -1.1802696706417, -0.68026967064173),
        2.180269670641735,
        1.0201913367268,
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_softmax(name):
    logits, temperature, probabilities, log_probabilities, log_z, entropy = DISTRIBUTIONS[name]
    log_probabilities = log_probabilities or logs(probabilities).tolist()
    told = K.softmax(rows(logits), [temperature])
    assert told.values[0].tolist() == pytest.approx(probabilities, rel=1e-9, abs=0)
    assert told.log_z.tolist() == pytest.approx([log_z], rel=1e-9, abs=1e-12)
    assert told.entropy.tolist() == pytest.approx([entropy], rel=1e-9, abs=1e-12)
    told = K.softmax(rows(logits), [temperature], "log_softmax")
    assert told.values[0].tolist() == pytest.approx(log_probabilities, rel=1e-9, abs=1e-12)
    assert K.softmax(rows(logits), [temperature], "logsumexp").values is None


@both
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_sampling_reports_the_same_entropy_and_probabilities(name, backend):
    logits, temperature, probabilities, _, _, entropy = DISTRIBUTIONS[name]
    answer = ask(logits, {"temperature": temperature}, backend)
    assert answer.entropy == answer.entropy_kept == pytest.approx(entropy, rel=1e-9, abs=1e-12)
    assert answer.kept == sum(logit > MASKED for logit in logits)
    assert answer.kept_mass == 1
    expected = {token: p for token, p in enumerate(probabilities) if p > 1e-9}
    assert distribution(logits, {"temperature": temperature}, backend) == pytest.approx(expected, rel=1e-9)


@both
@pytest.mark.parametrize("size", [32000, 128256, 151936, 262144])
def test_a_uniform_vocabulary_has_entropy_ln_v(size, backend):
    row = torch.full((size,), -3.25)
    answer = ask(row, {"temperature": 0.7}, backend)
    assert answer.entropy == pytest.approx(math.log(size), rel=1e-12)
    assert answer.logprobs == [pytest.approx(-math.log(size), rel=1e-12)]
    assert answer.kept == size
    told = K.softmax(K.DenseRows(row[None].double()), [0.7])
    assert told.entropy.tolist() == pytest.approx([math.log(size)], rel=1e-12)
    assert float((told.values * size - 1).abs().max()) < 1e-9


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_softmax_of_narrow_rows_is_float32(dtype):
    row = torch.tensor([[1.5, -2.25, 3.125, MASKED, 0.0]], dtype=FLOATS[dtype])
    told = K.softmax(K.DenseRows(row), [0.7])
    assert told.values.dtype == torch.float32
    assert told.values[0].tolist() == pytest.approx(softmax64(row[0], 0.7).tolist(), rel=1e-7)
    assert told.log_z.dtype == told.entropy.dtype == torch.float64


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_of_no_rows(kind):
    told = K.softmax(K.DenseRows(torch.zeros(0, 5)), [], kind)
    assert told.values is None or told.values.shape == (0, 5)
    assert told.log_z.shape == told.entropy.shape == (0,)
    assert told.faults == []


@both
def test_no_rows_have_no_answers(backend):
    assert K.sample(K.DenseRows(torch.zeros(0, 5)), backend=BACKENDS[backend]) == []
    assert K.sample(K.DenseRows(torch.zeros(0, 0)), backend=BACKENDS[backend]) == []


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("params", [{}, {"temperature": 0}, {"top_k": 3}, {"top_p": 0.1}, {"min_p": 1}])
def test_a_vocabulary_of_one(params, dtype, backend):
    answer = ask(torch.tensor([-3.0], dtype=FLOATS[dtype]), params, backend)
    assert (answer.tokens, answer.logprobs, answer.entropy, answer.kept, answer.kept_mass) == ([0], [0.0], 0.0, 1, 1.0)
