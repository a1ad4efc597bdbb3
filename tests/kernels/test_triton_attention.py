"""Linear attention's GPU kernels, interpreted on the CPU where there is no device, against all pairs in float64."""

import os
import subprocess
import sys

import pytest
import torch

if not torch.cuda.is_available():  # the variable is read when kernels are defined, triton's own among them, and run
    os.environ["TRITON_INTERPRET"] = "1"
triton = pytest.importorskip("triton")

from logitd_kernels.attention import Call, Options, Visible  # noqa: E402
from logitd_kernels.attention.features.feature import Setting, primed  # noqa: E402
from logitd_kernels.attention.features.registry import METHODS  # noqa: E402
from logitd_kernels.attention.linear import linear  # noqa: E402
from logitd_kernels.attention.moment.attend import moment  # noqa: E402
from logitd_kernels.attention.moment.calibrate import fit_basis  # noqa: E402
from logitd_kernels.attention.triton import launch, linear_attention, why_not  # noqa: E402
from logitd_kernels.errors import DtypeError, ShapeError  # noqa: E402

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
HERE = "cuda" if torch.cuda.is_available() else "cpu"
interpreted = type(triton.language.sum).__name__ == "InterpretedFunction"
assert interpreted == (HERE == "cpu"), "something imported triton before its kernels could be interpreted"


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    if HERE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def given(queries, keys, features, dims, heads=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(queries + 7 * features)
    shapes = [(heads, queries, features), (heads, keys, features), (heads, keys, dims)]
    phi_q, phi_k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    return phi_q.exp().to(HERE), phi_k.exp().to(HERE), v.to(dtype).to(HERE)


def assert_as_pairs(phi_q, phi_k, v, causal):
    weights = phi_q.double() @ phi_k.double().mT
    weights = weights.tril() if causal else weights
    numerator, denominator = linear_attention(phi_q, phi_k, v, causal=causal)
    torch.testing.assert_close(denominator.double(), weights.sum(-1), rtol=1e-5, atol=1e-5)
    scale = weights.sum(-1, keepdim=True)
    torch.testing.assert_close(numerator.double() / scale, weights @ v.double() / scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 129, 256, 257, 600])
def test_causal_lengths(length):
    """Chunks of 64 and segments of 256, whole and cut short."""
    assert_as_pairs(*given(length, length, 20, 17), causal=True)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (65, 257), (70, 1), (1, 600), (129, 64)])
def test_lengths(queries, keys):
    assert_as_pairs(*given(queries, keys, 20, 17), causal=False)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("features", "dims"), [(1, 1), (31, 16), (33, 64), (143, 65), (64, 130)])
def test_features_and_dims(features, dims, causal):
    assert_as_pairs(*given(70, 70, features, dims), causal=causal)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_narrow_values(dtype, causal):
    assert_as_pairs(*given(70, 70, 8, 8, dtype=dtype), causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("view", [lambda x: x.mT.contiguous().mT, lambda x: torch.stack([x, x], -1)[..., 0]])
def test_strides(view, causal):
    assert_as_pairs(*(view(one) for one in given(70, 70, 9, 5)), causal=causal)


def test_negative_weights_are_summed_as_they_are():
    phi_q, phi_k, v = given(70, 70, 9, 5)
    _, denominator = linear_attention(-phi_q, phi_k, v)
    assert (denominator < 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_a_head_does_not_know_the_others(causal):
    phi_q, phi_k, v = given(300, 300, 9, 5, heads=3)
    whole = linear_attention(phi_q, phi_k, v, causal=causal)
    alone = linear_attention(phi_q[1:2], phi_k[1:2], v[1:2], causal=causal)
    assert all(torch.equal(one[1:2], other) for one, other in zip(whole, alone, strict=True))


def test_the_past_does_not_know_the_future():
    phi_q, phi_k, v = given(300, 300, 9, 5)
    before = linear_attention(phi_q, phi_k, v, causal=True)
    phi_k[:, 140:], v[:, 140:] = 1e6, -1e6
    after = linear_attention(phi_q, phi_k, v, causal=True)
    assert all(torch.equal(one[:, :140], other[:, :140]) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("shape", [(0, 3, 3, 4, 4), (2, 0, 3, 4, 4), (2, 3, 0, 4, 4), (2, 3, 3, 0, 4)])
def test_nothing_to_sum(shape):
    heads, queries, keys, features, dims = shape
    tensors = (torch.ones(heads, *rest, device=HERE) for rest in ((queries, features), (keys, features), (keys, dims)))
    numerator, denominator = linear_attention(*tensors)
    assert numerator.shape == (heads, queries, dims)
    assert denominator.shape == (heads, queries)
    assert (numerator == 0).all()


def test_offsets_pass_2_to_the_31():
    phi_q, phi_k, v = given(70, 70, 8, 8, dtype=torch.float16)
    far = torch.empty(2**31 + 1000, dtype=torch.float16, device=HERE).as_strided((2, 70, 8), (2**31, 8, 1))
    far[:] = v
    for causal in (False, True):
        assert_as_pairs(phi_q, phi_k, far, causal)


@pytest.mark.parametrize(
    ("error", "field", "change"),
    [
        (ShapeError, "phi_q", {"phi_q": torch.zeros(3, 4)}),
        (DtypeError, "phi_k", {"phi_k": torch.zeros(2, 3, 4).half()}),
        (DtypeError, "v", {"v": torch.zeros(2, 3, 5).double()}),
        (ShapeError, "phi_k", {"phi_k": torch.zeros(2, 3, 5)}),
        (ShapeError, "phi_k", {"phi_k": torch.zeros(2, 4, 4), "v": torch.zeros(2, 4, 5)}),
        (ShapeError, "v", {"v": torch.zeros(2, 4, 5)}),
    ],
)
def test_what_is_refused(error, field, change):
    tensors = {"phi_q": torch.zeros(2, 3, 4), "phi_k": torch.zeros(2, 3, 4), "v": torch.zeros(2, 3, 5)} | change
    with pytest.raises(error) as raised:
        linear_attention(**{name: tensor.to(HERE) for name, tensor in tensors.items()}, causal=True)
    assert type(raised.value) is error
    assert raised.value.field == field


def test_importing_the_package_imports_no_triton():
    code = "import sys; import logitd_kernels.attention.triton; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_blocks_fit_the_values():
    sizes = {
        dims: launch.constants(launch.read_kernel.arg_names, dims, True)["BLOCK_D"] for dims in (1, 16, 17, 64, 200)
    }
    assert sizes == {1: 16, 16: 16, 17: 32, 64: 32, 200: 32}


os.environ.pop("TRITON_INTERPRET", None)  # all kernels are defined; nothing else of this process is meant


def heads(length, dim=8, spread=0.5):
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(2, length, dim, generator=generator) for _ in range(3))
    return q * spread, k * spread, v


@pytest.mark.parametrize("method", ["favor_plus", "hyperbolic", "elu"])
@pytest.mark.parametrize("causal", [False, True])
def test_feature_maps_through_the_kernels(method, causal):
    """What `linear` computes on the CPU, from the same features."""
    q, k, v = heads(150)
    call = Call(q[None], k[None], v[None], Visible(causal=causal))
    setting = Setting(8, call.scaling, Options())
    fitted = METHODS[method].fit(setting)
    places = torch.arange(150)
    phi_q, phi_k = (
        features.exponent.exp() * (1 if features.factor is None else features.factor)
        for features in (
            fitted.queries(primed(q, call.scaling, q.dtype), places),
            fitted.keys(primed(k, call.scaling, k.dtype), places),
        )
    )
    numerator, denominator = linear_attention(phi_q.to(HERE), phi_k.to(HERE), v.to(HERE), causal=causal)
    want = linear(call, method, Options()).output[0]
    torch.testing.assert_close((numerator / denominator[..., None]).cpu(), want, rtol=1e-4, atol=1e-5)


def test_the_moment_state_through_the_kernels():
    """Its weights are products of features too, once the keys' mean and covariance are known."""
    q, k, v = heads(150)
    call = Call(q[None], k[None], v[None])
    basis = fit_basis(q * call.scaling, k, 4)
    x, keys = q * call.scaling - basis.query_centre[:, None], k - basis.key_centre[:, None]
    y_q, y_k = x @ basis.query_map.mT, keys @ basis.key_map.mT
    weight = torch.softmax((keys @ basis.query_centre[..., None])[..., 0], 1)[..., None]
    mean, low_mean = ((weight * one).sum(1, keepdim=True) for one in (keys, y_k))
    b, b_r = (x @ mean.mT), (y_q @ low_mean.mT)
    variance = (((y_q @ y_k.mT - b_r) ** 2) @ weight).clamp(min=0)
    constant = 1 - variance.clamp(max=1) / 2 - b + b_r**2 / 2
    outer = [torch.einsum("hni,hnj->hnij", y, y).flatten(2) for y in (y_q, y_k)]
    phi_q = torch.cat([constant, x - b_r * (y_q @ basis.key_map), outer[0] / 2], 2)
    phi_k = weight * torch.cat([torch.ones_like(weight), keys, outer[1]], 2)
    numerator, denominator = linear_attention(phi_q.to(HERE), phi_k.to(HERE), v.to(HERE))
    want = moment(call, Options(rank=4), basis).output[0]
    torch.testing.assert_close((numerator / denominator[..., None]).cpu(), want, rtol=1e-4, atol=1e-5)
