"""Feature maps: the kernels they estimate, their projections, and the parameters that adapt."""

import math
from dataclasses import fields

import pytest
import torch
from attention.features_of import fitted_to, kernel, lifted, normal
from scipy.stats import chi2, kstest
from torch.nn.functional import elu

from logitd_kernels.attention.features.favor_sharp import balance_of
from logitd_kernels.attention.features.feature import Method, Setting
from logitd_kernels.attention.features.moments import Moments
from logitd_kernels.attention.features.projection import projection
from logitd_kernels.attention.features.registry import METHODS, method_named
from logitd_kernels.errors import ParameterError

RANDOM = [name for name, method in METHODS.items() if method.approximates]
NAMES = {"favor_plus", "favor_plus_plus", "favor_sharp", "hyperbolic", "trig", "elu", "taylor2", "cosformer", "derf"}


def test_every_map_is_registered_and_told_about():
    assert set(METHODS) == NAMES
    for name, method in METHODS.items():
        assert method.name == name
        assert all(getattr(method, field.name) != "" for field in fields(Method))
    with pytest.raises(ParameterError, match="favor_plus, "):
        method_named("performer")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dim", [1, 7, 16])
def test_sizes(name, dim):
    x, y = normal(3, 5, dim), normal(3, 4, dim, seed=1)
    want = {"elu": dim, "taylor2": 1 + dim + dim * (dim + 1) // 2, "cosformer": 2 * dim}.get(name, 4 * dim)
    fitted = METHODS[name].fit(fitted_to(x, y))
    for features in (fitted.queries(x, torch.arange(5)), fitted.keys(x, torch.arange(5))):
        assert lifted(features).shape == (3, 5, want) == (3, 5, fitted.size)
        assert features.exponent.shape == (3, 5, fitted.width)
        assert features.exponent.dtype == torch.float64


@pytest.mark.parametrize("wanted", [1, 0, -4, True, 8.0, "8"])
@pytest.mark.parametrize("name", RANDOM)
def test_feature_dim_is_checked(name, wanted):
    with pytest.raises(ParameterError, match="feature_dim"):
        kernel(name, normal(1, 2, 4), normal(1, 2, 4), feature_dim=wanted)


@pytest.mark.parametrize("name", ["trig", "hyperbolic"])
def test_two_features_a_projection(name):
    with pytest.raises(ParameterError, match="feature_dim: must be even"):
        kernel(name, normal(1, 2, 4), normal(1, 2, 4), feature_dim=9)


@pytest.mark.parametrize("seed", [-1, 1 << 64, True, 0.5])
def test_seeds_are_checked(seed):
    with pytest.raises(ParameterError, match="seed"):
        projection(4, 4, seed, True)


@pytest.mark.parametrize(("name", "wrong"), [("dim", 0), ("horizon", 0), ("horizon", 2.0), ("scale", math.inf)])
def test_settings_are_checked(name, wrong):
    with pytest.raises(ParameterError, match=name):
        Setting(**{"dim": 4, "scale": 1.0, name: wrong})


@pytest.mark.parametrize("name", ["favor_plus_plus", "favor_sharp", "derf"])
def test_maps_that_adapt_need_moments(name):
    x = normal(1, 2, 4)
    with pytest.raises(ParameterError, match="moments"):
        METHODS[name].fit(fitted_to(x, x, moments=False))


@pytest.mark.parametrize("dim", [1, 7, 64])
def test_orthogonal_blocks(dim):
    rows = projection(3 * dim + 1, dim, 5, True).double()
    assert rows.shape == (3 * dim + 1, dim)
    for block in rows.split(dim):
        turned = block / block.norm(dim=1, keepdim=True)
        torch.testing.assert_close(turned @ turned.T, torch.eye(len(block)).double(), rtol=0, atol=1e-6)


def test_orthogonal_rows_are_gaussian_each():
    """Their lengths are those of Gaussian vectors, and no direction is preferred."""
    blocks = torch.stack([projection(7, 7, seed, True) for seed in range(600)]).double()
    assert kstest(blocks.square().sum(-1).flatten().numpy(), chi2(7).cdf).pvalue > 1e-3
    assert kstest(blocks[:, :, 0].flatten().numpy(), "norm").pvalue > 1e-3
    assert kstest(blocks[:, 0].flatten().numpy(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("orthogonal", [True, False])
def test_a_seed_says_it_all(orthogonal):
    first = projection(40, 7, 3, orthogonal).clone()
    projection.cache_clear()
    assert torch.equal(projection(40, 7, 3, orthogonal), first)
    assert torch.equal(projection(20, 7, 3, orthogonal), first[:20])
    assert not torch.equal(projection(40, 7, 4, orthogonal), first)
    assert torch.isfinite(projection(4, 7, (1 << 64) - 1, orthogonal)).all()


@pytest.mark.parametrize("moved", [0.0, 0.5])
@pytest.mark.parametrize("name", RANDOM)
def test_kernels_are_unbiased(name, moved):
    """Whatever a map does to queries and keys before, balance or rotation: the mean over draws is near e^(x·y)."""
    stretch = torch.tensor([2.0, 1.0, 0.2, 1.0])
    x, y = normal(1, 3, 4, spread=0.3) * stretch + moved, normal(1, 3, 4, seed=1, spread=0.3) - moved
    draws = torch.cat([kernel(name, x, y, feature_dim=40, seed=seed) for seed in range(400)])
    deviation = (draws.mean(0) - torch.exp(x[0] @ y[0].mT)) / (draws.std(0) / 400**0.5)
    assert float(deviation.abs().max()) < 4


def test_maps_without_randomness():
    x, y = normal(2, 5, 3, spread=2.0), normal(2, 9, 3, seed=1) + 1
    for moments in (True, False):
        to = moments * x.mean(1, keepdim=True), moments * y.mean(1, keepdim=True)
        logits, weights = (x - to[0]) @ (y - to[1]).mT, torch.exp(to[0] @ (y - to[1]).mT)
        want = weights * (1 + logits + logits.square() / 2)
        torch.testing.assert_close(kernel("taylor2", x, y, moments=moments), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kernel("elu", x, y), (elu(x) + 1) @ (elu(y) + 1).mT)
    distance = torch.arange(5.0).double()[:, None] - torch.arange(9)
    want = x.relu() @ y.relu().mT * torch.cos(math.pi * distance / 18)
    torch.testing.assert_close(kernel("cosformer", x, y), want)


def test_elu_keeps_the_digits_of_small_features():
    x = torch.full((1, 1, 1), -30.0)
    lifted_x = METHODS["elu"].fit(Setting(1, 1.0)).keys(x, torch.arange(1)).factor
    assert float(lifted_x) == pytest.approx(math.exp(-30))


def log_second_moment(x, y, dim, a):
    """Of one feature of FAVOR++, log E (φ(x)φ(y))² with A = a."""
    power = 2 * (1 - 4 * a) * float((x + y).square().sum()) / (1 - 8 * a)
    constant = dim * math.log(1 - 4 * a) - dim / 2 * math.log(1 - 8 * a)
    return constant + power - float(x.square().sum() + y.square().sum())


def best_a(x, y, dim):
    spread = float((x + y).square().sum()) / dim
    return (1 - ((1 + 2 * spread) + math.sqrt((1 + 2 * spread) ** 2 + 8 * spread)) / 2) / 8


@pytest.mark.parametrize("cosine", [0.0, -0.5])
@pytest.mark.parametrize("name", ["trig", "favor_plus", "hyperbolic", "favor_plus_plus"])
def test_the_variance_is_that_of_the_papers(name, cosine):
    """‖x‖ = ‖y‖ = 1, 32 independent projections: mean squared error over 3000 seeds against the closed form."""
    dim, rows = 16, 32
    x, y = torch.zeros(2, 1, 1, dim, dtype=torch.float64)
    x[..., 0], y[..., 0], y[..., 1] = 1, cosine, math.sqrt(1 - cosine**2)
    true, total = math.exp(cosine), float((x + y).square().sum())
    positive = math.exp(total) * true**2 * (1 - math.exp(-total)) / rows
    closed = {
        "trig": math.exp(2) * (1 - math.exp(-float((x - y).square().sum()))) ** 2 / (2 * rows),
        "favor_plus": positive,
        "hyperbolic": (1 - math.exp(-total)) * positive / 2,
        "favor_plus_plus": (math.exp(log_second_moment(x, y, dim, best_a(x, y, dim))) - true**2) / rows,
    }[name]
    size = rows * (2 if name in ("trig", "hyperbolic") else 1)
    seeds = range(3000)
    values = torch.cat([kernel(name, x, y, feature_dim=size, orthogonal=False, seed=seed) for seed in seeds])
    assert float((values - true).square().mean()) == pytest.approx(closed, rel=0.15)


@pytest.mark.parametrize("moved", [0.0, 3.0])
def test_favor_sharp_balances_queries_and_keys(moved):
    """Lengths differ: each side's mean is over its own."""
    x, y = normal(2, 300, 5) * torch.tensor([9.0, 1, 1, 0.1, 1]) + moved, normal(2, 70, 5, seed=1)
    balance = balance_of(Moments.of(x, y))[:, None]
    torch.testing.assert_close((x * balance).square().mean(1), (y / balance).square().mean(1), rtol=1e-5, atol=0)
    fitted = METHODS["favor_sharp"].fit(fitted_to(x, y))
    torch.testing.assert_close(fitted.balance, balance)


def test_favor_sharp_is_favor_plus_plus_of_what_is_balanced():
    x, y = normal(2, 300, 5) * torch.tensor([9.0, 1, 1, 0.1, 1]) + 1, normal(2, 70, 5, seed=1) - 0.5
    fitted = METHODS["favor_sharp"].fit(fitted_to(x, y))
    same = METHODS["favor_plus_plus"].fit(fitted_to(x * fitted.balance, y / fitted.balance))
    torch.testing.assert_close(fitted.rows, same.rows, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fitted.bias, same.bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", [0.3, 1.0, 3.0])
def test_a_is_where_the_variance_is_least(norm):
    dim = 6
    x, y = normal(1, 1, dim) * norm, normal(1, 1, dim, seed=1) * norm
    fitted = METHODS["favor_plus_plus"].fit(fitted_to(x, y))
    w = projection(4 * dim, dim, 0, True).double()
    a = float((1 - (fitted.rows[0] / w).square().mean()) / 4)
    near = [log_second_moment(x, y, dim, at) for at in (a - 0.01, a, a + min(0.01, -a / 2))]
    assert near[1] == min(near)


def test_derf_turns_to_the_data():
    """Queries and keys along one direction that is no axis: damping it alone beats damping all."""
    axis = torch.linalg.qr(normal(6, 6, seed=3))[0][0] * 1.5
    x = axis + normal(1, 20, 6, spread=0.1)
    y = axis + normal(1, 20, 6, seed=1, spread=0.1)

    def error(name):
        draws = torch.cat([kernel(name, x, y, feature_dim=48, seed=seed) for seed in range(50)])
        return float((draws / torch.exp(x @ y.mT) - 1).square().mean())

    assert error("derf") < 0.5 * error("favor_plus_plus")


def test_a_dimension_without_queries_or_keys_is_left_alone():
    x, y = normal(1, 10, 3), normal(1, 10, 3, seed=1)
    x[..., 0], y[..., 1] = 0, 0
    assert balance_of(Moments.of(x, y))[0, :2].tolist() == [1, 1]


def test_favor_plus_plus_without_norms_is_favor_plus():
    x = torch.zeros(1, 4, 6, dtype=torch.float64)
    fitted = METHODS["favor_plus_plus"].fit(fitted_to(x, x))
    plain = METHODS["favor_plus"].fit(fitted_to(x, x))
    torch.testing.assert_close(fitted.rows[0], plain.rows)
    torch.testing.assert_close(fitted.bias.squeeze(), torch.full((24,), plain.bias, dtype=torch.float64))


def test_moments_of_a_sum():
    x, y = normal(2, 50, 4) + 1, normal(2, 30, 4, seed=1) - 2
    sums = x[:, :, None] + y[:, None]
    want = torch.einsum("hijd,hije->hde", sums, sums) / (50 * 30)
    torch.testing.assert_close(Moments.of(x, y).of_sum(), want, rtol=1e-5, atol=1e-5)
