"""The distribution of a row: what `sample` draws from, in numbers."""

import math

import numpy as np
import pytest
import torch
from rows_of import BACKENDS, INF, logs, row_of, softmax64
from rows_of import distribution as walked

import logitd_kernels as K
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.distribution import distribution

STEPS = [0.1, 0.2, 0.3, 0.4]
TABLE = [
    ({}, STEPS),
    ({"temperature": 0}, [0, 0, 0, 1]),
    ({"temperature": 0.5}, [x * x / 0.3 for x in STEPS]),
    ({"top_k": 1}, [0, 0, 0, 1]),
    ({"top_k": 3}, [0, 2 / 9, 3 / 9, 4 / 9]),
    ({"top_p": 0.69}, [0, 0, 3 / 7, 4 / 7]),
    ({"top_p": 0.71}, [0, 2 / 9, 3 / 9, 4 / 9]),
    ({"min_p": 0.51}, [0, 0, 3 / 7, 4 / 7]),
    ({"banned_ids": [3]}, [1 / 6, 2 / 6, 3 / 6, 0]),
    ({"logit_bias": {0: math.log(4)}}, [4 / 13, 2 / 13, 3 / 13, 4 / 13]),
    ({"logit_bias": {"3": "-inf"}, "temperature": 0}, [0, 0, 1, 0]),
]


def of(row, params=None, backend="torch"):
    return distribution(K.DenseRows(row[None]), [K.check(params or {})], BACKENDS[backend])[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("params", "expected"), TABLE)
def test_a_row_of_worked_numbers(params, expected, backend):
    found = of(logs(STEPS), params, backend)
    assert found == pytest.approx(expected, abs=1e-14)
    assert found.dtype == np.float64


@pytest.mark.parametrize("params", [{}, {"temperature": 0.3, "top_p": 0.8}, {"top_k": 5}, {"min_p": 0.1}])
@pytest.mark.parametrize("kind", ["normal", "ties", "mostly_masked"])
def test_it_is_what_sample_draws_from(kind, params):
    row = row_of(kind, 17)
    found = of(row, params)
    drawn = walked(row, params)
    assert set(np.flatnonzero(found > 1e-9)) == set(drawn)
    assert {token: found[token] for token in drawn} == pytest.approx(drawn, rel=1e-6)


def test_greedy_takes_the_lowest_of_equal_ids():
    assert of(torch.tensor([1.0, 3.0, 3.0]), {"temperature": 0}).tolist() == [0, 1, 0]


def test_tiny_temperatures_and_masks_stay_finite():
    row = torch.tensor([10.0, 9.99, -INF])
    assert of(row, {"temperature": 1e-300}).tolist() == [1, 0, 0]
    assert of(row.double(), {"temperature": 1e-4})[1] == pytest.approx(3.72007597603e-44, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_every_dtype_is_weighed_in_float64(dtype):
    row = row_of("normal", 1000, dtype)
    assert of(row, {"temperature": 0.7}) == pytest.approx(softmax64(row, 0.7), rel=1e-12)


def test_a_bad_row_fails_alone_and_the_others_keep_their_bits():
    rows = torch.stack([row_of("normal", 50), torch.full((50,), math.nan), torch.full((50,), -INF)])
    params = [K.check({"top_p": 0.9})] * 3
    good, nan, masked = distribution(K.DenseRows(rows), params)
    assert (good == distribution(K.DenseRows(rows[:1]), params[:1])[0]).all()
    assert (nan.row, nan.code, masked.row, masked.code) == (1, "non_finite", 2, "all_masked")


def test_a_mask_acts_on_its_row():
    rows = K.DenseRows(logs(STEPS)[None].repeat(2, 1), torch.tensor([[0b0110], [0b1111]], dtype=torch.int32))
    masked, whole = distribution(rows, [K.check({})] * 2)
    assert masked == pytest.approx([0, 0.4, 0.6, 0])
    assert whole == pytest.approx(STEPS)


def test_what_cannot_be_is_refused():
    rows = K.DenseRows(torch.zeros(2, 3))
    with pytest.raises(ParameterError, match="each of 2 rows, got 1"):
        distribution(rows, [K.check({})])
    with pytest.raises(ParameterError, match="token id 3 is outside") as caught:
        distribution(rows, [K.check({}), K.check({"banned_ids": [3]})])
    assert caught.value.row == 1
