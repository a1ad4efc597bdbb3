"""Feature maps on the heads of a real model, L = 512: the measured table, and how near it is to the mean of V."""

import pytest
import torch
from attention import minilm

from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.linear import linear
from logitd_kernels.attention.mean import mean_v
from logitd_kernels.attention.nystrom import nystrom
from logitd_kernels.attention.reference import reference

pytestmark = pytest.mark.skipif(minilm.ABSENT, reason=minilm.REASON)

# Median relative error over 72 heads.
RANDOM = {  # m = 128, 256, 512
    "favor_plus": (0.80, 0.77, 0.73),
    "hyperbolic": (0.77, 0.74, 0.71),
    "favor_plus_plus": (0.83, 0.78, 0.70),
    "favor_sharp": (0.80, 0.76, 0.69),
    "derf": (0.77, 0.68, 0.59),
}
FIXED = {"elu": 0.74, "taylor2": 0.35, "cosformer": 0.70}
MEAN = 0.775


@pytest.fixture(scope="module")
def layers():
    """Every layer's call and its exact output."""
    calls = [Call(*layer) for layer in minilm.layers(512)]
    return [(call, reference(call).output) for call in calls]


def median(layers, attend):
    errors = []
    for call, exact in layers:
        wrong = (attend(call).output.double() - exact).flatten(2).norm(dim=-1)
        errors.append((wrong / exact.flatten(2).norm(dim=-1)).flatten())
    return float(torch.cat(errors).median())


@pytest.mark.parametrize("name", RANDOM)
def test_random_maps(layers, name):
    sizes = (128, 256, 512)
    got = [median(layers, lambda call, m=m: linear(call, name, Options(feature_dim=m))) for m in sizes]
    assert got == pytest.approx(RANDOM[name], rel=0.15)
    assert min(got) > 0.7 * MEAN


@pytest.mark.parametrize("name", FIXED)
def test_maps_without_randomness(layers, name):
    assert median(layers, lambda call: linear(call, name, Options())) == pytest.approx(FIXED[name], rel=0.1)


def test_the_mean_and_landmarks(layers):
    assert median(layers, mean_v) == pytest.approx(MEAN, rel=0.03)
    for landmarks, want in ((32, 0.80), (64, 0.78)):
        got = median(layers, lambda call, c=landmarks: nystrom(call, Options(feature_dim=c)))
        assert got == pytest.approx(want, rel=0.1)


def test_half_the_trigonometric_normalisers_are_not_positive(layers):
    refused = sum(int(linear(call, "trig", Options()).nonpositive_rows.sum()) for call, _ in layers)
    assert 0.4 < refused / (72 * 512) < 0.55
