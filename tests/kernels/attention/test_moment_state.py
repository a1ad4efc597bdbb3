"""The moment state itself: its coordinates, its sums, how it leaves and comes back, and what it promises beforehand."""

import pytest
import torch
from attention.heads_of import call_of, heads_of
from torch.testing import assert_close

from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.moment.attend import moment
from logitd_kernels.attention.moment.calibrate import Basis, calibrate, fit_basis
from logitd_kernels.attention.moment.feasibility import feasibility, weight_error
from logitd_kernels.attention.moment.read import pairs
from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import ShapeError


def relative(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


def test_the_coordinates_are_exact_algebra():
    q, k, _ = (x.double() for x in heads_of(200, 150, dim=8, spread=2))
    basis = fit_basis(q[0], k[0], 8)
    x, keys = q[0] - basis.query_centre[:, None], k[0] - basis.key_centre[:, None]
    low = (x @ basis.query_map.mT) @ (keys @ basis.key_map.mT).mT
    omega = (keys @ basis.query_centre[..., None]).mT
    assert_close(low + omega, q[0] @ keys.mT, rtol=1e-9, atol=1e-9)


def test_covariances_are_balanced_and_diagonal():
    q, k, _ = (x.double() for x in heads_of(60, 60, dim=8))
    basis = fit_basis(q[0], k[0] * torch.arange(1, 9), 5)
    y_q = (q[0] - basis.query_centre[:, None]) @ basis.query_map.mT
    y_k = (k[0] * torch.arange(1, 9) - basis.key_centre[:, None]) @ basis.key_map.mT
    wanted = torch.diag_embed(basis.spectrum[:, :5])
    for y in (y_q, y_k):
        assert_close(y.mT @ y / 60, wanted, rtol=0, atol=1e-3)  # up to the ridge
    assert (basis.spectrum.diff() <= 0).all()


def test_every_pair_of_directions_is_there_once():
    for rank in (1, 2, 3, 4, 7, 12):
        y = torch.arange(2, 2 + rank, dtype=torch.float64).log()[:, None].exp()
        products = pairs(y)[:, 0].tolist()
        assert sorted(products) == pytest.approx(sorted(float(y[i] * y[j]) for i in range(rank) for j in range(i + 1)))
        assert products[:rank] == pytest.approx((y[:, 0] ** 2).tolist())


@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_the_normaliser_is_at_least_the_sum_of_weights(spread):
    q, k, v = heads_of(300, spread=spread)
    state = MomentState(calibrate(Call(q, k, v), 12)[0], v.shape[3])
    state.append(k[0], v[0])
    total = state.sums[:, :1, -1]
    assert (total >= 1).all()
    assert (state.read(q[0] / 4).denominator >= total).all()


def test_an_early_accumulation_is_not_lost_in_a_long_one():
    """Known fault: a state in bfloat16 stops growing after 256 equal increments."""
    k, v = torch.zeros(1, 16384, 4), torch.rand(1, 16384, 2, generator=torch.Generator().manual_seed(0)) + 0.5
    state = MomentState(fit_basis(k[:, :10], k[:, :10], 2), 2)
    for start in range(16384):
        state.append(k[:, start : start + 1], v[:, start : start + 1])
    assert_close(state.sums[0, 0], torch.cat([v[0].sum(0), torch.tensor([16384.0])]), rtol=1e-5, atol=0)


def test_a_basis_of_another_sample_serves():
    here, there = call_of(500, dim=8, spread=0.8), call_of(500, dim=8, spread=0.8, seed=9)
    want = reference(here).output
    own = relative(moment(here, Options(rank=8)).output, want)
    assert relative(moment(here, Options(), calibrate(there, 8)[0]).output, want) < 1.5 * own


def test_a_basis_for_other_heads_is_refused():
    basis = calibrate(call_of(20, heads=3), 4)
    with pytest.raises(ShapeError, match="key_map"):
        moment(call_of(20), Options(), basis)


def test_a_state_continues_on_the_same_bits():
    q, k, v = heads_of(90)
    state = MomentState(calibrate(Call(q, k, v), 5)[0], v.shape[3])
    state.append(k[0, :, :40], v[0, :, :40])
    copy = MomentState.restore(state.export())
    for each in (state, copy):
        each.append(k[0, :, 40:], v[0, :, 40:])
    assert copy.tokens == 90
    for name, tensor in state.export().items():
        assert_close(copy.export()[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sums", "log_scale", "tokens", "basis.key_map", "basis.query_centre"])
def test_a_damaged_state_is_refused(name):
    q, k, v = heads_of(30)
    whole = MomentState(calibrate(Call(q, k, v), 5)[0], v.shape[3]).export()
    for broken in ({**whole, name: torch.zeros(2, 2, 2, 2)}, {each: whole[each] for each in whole if each != name}):
        with pytest.raises(ShapeError):
            MomentState.restore(broken)


def test_a_state_weighs_what_the_formula_says():
    q, k, v = heads_of(100, dim=64, heads=4)
    state = MomentState(calibrate(Call(q, k, v), 12)[0], 64)
    assert state.sums.nbytes == 4 * 143 * 65 * 4
    assert moment(Call(q, k, v), Options()).state_bytes == 143 * 65 * 4


def test_appends_of_another_shape_are_refused():
    q, k, v = heads_of(10)
    state = MomentState(calibrate(Call(q, k, v), 5)[0], v.shape[3])
    for keys, values in ((k[0, :1], v[0]), (k[0, :, :, :3], v[0]), (k[0], v[0, :, :4])):
        with pytest.raises(ShapeError):
            state.append(keys, values)
    with pytest.raises(ShapeError):
        state.read(q[0, :, :, :3])


def test_the_best_polynomial_on_normal_logits():
    """Reference 2.3: what degrees 0 and 2 leave at some standard deviations."""
    assert weight_error(torch.tensor(0.25), 0).item() == pytest.approx(0.47, abs=0.005)
    found = weight_error(torch.tensor([0.25, 0.5, 1.0, 2.0]) ** 2).tolist()
    assert found == pytest.approx([0.006, 0.047, 0.28, 0.87], rel=0.05)


@pytest.mark.parametrize("spread", [0.5, 0.7, 1.0])
def test_feasibility_predicts_the_error_on_normal_logits(spread):
    call = call_of(800, dim=16, spread=spread)
    found, want = feasibility(call), reference(call).output
    error = relative(moment(call, Options(rank=16)).output, want)
    assert found.error.mean().item() == pytest.approx(error, rel=0.4)
    assert found.norm.mean().item() == pytest.approx(2 * 16 * spread**2 / 4, rel=0.05)
    assert found.variance.mean().item() == pytest.approx(spread**4, rel=0.1)


def test_an_empty_batch_has_no_bases():
    assert calibrate(Call(*(x[:0] for x in heads_of(5))), 3).key_map.shape == (0, 2, 3, 16)
    assert isinstance(calibrate(call_of(5), 3)[0], Basis)


def test_a_single_query_is_answered_exactly():
    call = call_of(1, 300, spread=4)
    assert relative(moment(call, Options()).output, reference(call).output) < 1e-5


def test_error_falls_with_the_rank():
    call = call_of(700, dim=32, heads=3, spread=0.7)
    want = reference(call).output
    errors = [relative(moment(call, Options(rank=rank)).output, want) for rank in (1, 8, 16, 32)]
    assert errors == sorted(errors, reverse=True)
    assert errors[3] < 0.7 * errors[0]
