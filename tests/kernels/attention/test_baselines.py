"""The mean of V and Nyström's landmarks: what they answer, and whose rows they look at."""

from dataclasses import replace

import pytest
import torch
from attention.features_of import CAUSAL, assert_near
from attention.heads_of import call_of, heads_of

from logitd_kernels.attention.call import Call, Options, Visible
from logitd_kernels.attention.mean import mean_v
from logitd_kernels.attention.nystrom import nystrom
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import ParameterError


@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(65, 65), (20, 65), (65, 20), (5, 0), (0, 5)])
def test_mean_v(queries, keys, causal, align):
    call = call_of(
        queries, keys, batch=3, heads=4, kv_heads=2, dim=8, scale=0.0,
        visible=Visible(causal=causal, align=align, lengths=torch.tensor([keys, keys // 2, 0])),
    )  # fmt: skip
    got = mean_v(call)
    assert_near(got.output, reference(call).output, 1e-6)
    assert got.state_bytes == 36
    with pytest.raises(ParameterError, match="mask"):
        mean_v(replace(call, visible=Visible(mask=torch.ones(1, 1, 1, 1, dtype=torch.bool))))


@pytest.mark.parametrize(("queries", "keys"), [(50, 50), (20, 50), (50, 20)])
def test_nystrom_with_every_landmark_is_exact(queries, keys):
    call = call_of(queries, keys, heads=4, kv_heads=2, dim=8, spread=1.5)
    assert_near(nystrom(call, Options()).output, reference(call).output, 1e-3)


def test_nystrom_with_few_landmarks():
    """Segments of slowly changing tokens: 16 landmarks come near, 4 do not."""
    path = torch.linspace(0, 3, 512)[None, None, :, None] * torch.arange(1, 9)
    q, v = torch.sin(path), torch.cos(path)
    call = Call(q, q, v)
    exact = reference(call).output
    errors = [float((nystrom(call, Options(feature_dim=c)).output - exact).norm() / exact.norm()) for c in (4, 16, 64)]
    assert errors[0] > 5 * errors[1] > 5 * errors[2]
    assert errors[1] < 0.02


def test_nystrom_rows_are_their_own():
    q, k, v = heads_of(90, batch=3, dim=8, spread=2.0)
    k[2] *= 50
    lengths = torch.tensor([90, 40, 0])
    q[1, :, 40:], k[1, :, 40:], v[1, :, 40:] = torch.nan, torch.nan, torch.nan
    got = nystrom(Call(q, k, v, Visible(lengths=lengths)), Options(feature_dim=16)).output
    for row, length in enumerate([90, 40]):
        alone = Call(*(x[row : row + 1, :, :length] for x in (q, k, v)))
        assert torch.equal(nystrom(alone, Options(feature_dim=16)).output, got[row : row + 1, :, :length])
    assert (got[2] == 0).all()
    assert (got[1, :, 40:] == 0).all()


def test_nystrom_refuses_causality_and_no_landmarks():
    call = call_of(5, dim=4)
    with pytest.raises(ParameterError, match="causal"):
        nystrom(replace(call, visible=CAUSAL), Options())
    for landmarks in (0, True, 2.5):
        with pytest.raises(ParameterError, match="feature_dim"):
            nystrom(call, Options(feature_dim=landmarks))


def test_nystrom_state_and_cost():
    got = nystrom(call_of(1024, dim=16), Options(feature_dim=32))
    assert got.state_bytes == 32 * 32 * 4
    assert got.cost == pytest.approx((2 * 1024 * 32 * 32 + 32 * 32 * 32 + 20 * 32**3) / (1024 * 1024 * 32))
