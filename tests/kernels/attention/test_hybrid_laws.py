"""What holds for hybrid attention whatever is asked: needles, constants, mates, later tokens, dtypes, sizes."""

import pytest
import torch
from attention.heads_of import call_of, heads_of
from torch.testing import assert_close

from logitd_kernels.attention.audit import audit
from logitd_kernels.attention.call import Call, Options, Visible
from logitd_kernels.attention.hybrid import Parts, hybrid
from logitd_kernels.attention.hybrid.cost import cost_of
from logitd_kernels.attention.mean import mean_v
from logitd_kernels.attention.moment.calibrate import fit_basis
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import ParameterError

CAUSAL = Visible(causal=True)
OPTIONS = Options(rank=6)


def relative(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


def test_one_huge_logit_gives_its_value():
    q, k, v = heads_of(1500)
    for place in (0, 777, 1499):
        keys = k.clone()
        keys[:, :, place] = 0
        keys[..., 0] = 0
        keys[:, :, place, 0] = 400
        queries = q.clone()
        queries[..., 0] = 1
        found = hybrid(Call(queries, keys, v), OPTIONS).output
        assert_close(found, v[:, :, place : place + 1].expand_as(found), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("visible", [Visible(), CAUSAL])
def test_constant_keys_give_the_mean(visible):
    q, k, v = heads_of(900)
    call = Call(q * 10, k[:, :, :1].expand_as(k), v, visible)
    assert_close(hybrid(call, OPTIONS).output, mean_v(call).output, rtol=1e-4, atol=1e-5)
    call = Call(q, k, v, visible, scale=0.0)
    assert_close(hybrid(call, OPTIONS).output, mean_v(call).output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("of", ["key", "query", "both"])
def test_a_needle_is_answered(of):
    """One key that one query looks for, far from both and from every audited row."""
    q, k, v = heads_of(2000, dim=64, spread=0.7)
    query, key = 1234, 345
    direction = torch.nn.functional.normalize(k[:, :, key], dim=-1)
    norms = {"key": (6.0, 40.0), "query": (40.0, 6.0), "both": (16.0, 16.0)}[of]  # a score of 30 beside a log of 7.6
    q[:, :, query], k[:, :, key] = direction * norms[0], direction * norms[1]
    v[:, :, key] *= 20
    call = Call(q, k, v)
    found, want = hybrid(call, Options()), reference(call).output
    assert relative(want[:, :, query], v[:, :, key]) < 1e-3
    assert relative(found.output[:, :, query], want[:, :, query]) < 0.1


def test_a_needle_among_equal_norms_needs_a_head_that_is_reported():
    q, k, v = heads_of(2000, dim=64, spread=1.2)
    q[:, :, 1234] = k[:, :, 345]  # a score of 11.5 with a norm like everybody's
    call = Call(q, k, v)
    assert (reference(call).max_prob[:, :, 1234] > 0.5).all()
    assert (audit(call, hybrid(call, Options()).output).error > 0.12).all()


def test_the_audit_reports_what_is_there():
    call = call_of(1200, heads=6, spread=1.0)
    found, want = hybrid(call, OPTIONS), reference(call).output
    true = (found.output - want).flatten(2).norm(dim=2) / want.flatten(2).norm(dim=2)
    told = audit(call, found.output)
    assert ((told.error > 0.7 * true) & (told.error < 1.3 * true)).all()
    assert ((told.low < true) & (true < told.high)).double().mean() >= 0.75
    assert (told.mean_v_error > 1.5 * told.error).all()


def test_later_tokens_do_not_reach_earlier_answers():
    q, k, v = heads_of(1200, dim=8)
    later = [x.clone() for x in (q, k, v)]
    for x in later:
        x[:, :, 700:] *= 30
    before = hybrid(Call(q, k, v, CAUSAL), OPTIONS).output[:, :, :700]
    assert_close(hybrid(Call(*later, CAUSAL), OPTIONS).output[:, :, :700], before, rtol=1e-6, atol=1e-6)


def test_a_call_of_the_last_queries_continues_the_whole():
    """Blocks are counted from the first key: what a position answers does not depend on which queries come along."""
    q, k, v = heads_of(1000, dim=8)
    whole = hybrid(Call(q, k, v, CAUSAL), OPTIONS)
    basis = fit_basis(q[0, :, :256] / 8**0.5, k[0, :, :256], 6)
    last = hybrid(Call(q[:, :, 613:], k, v, CAUSAL), OPTIONS, basis)
    assert_close(last.output, whole.output[:, :, 613:], rtol=1e-5, atol=1e-6)


def test_a_sequence_does_not_depend_on_its_mates_or_its_padding():
    q, k, v = heads_of(500, batch=3)
    lengths = torch.tensor([500, 233, 400])
    k[1, :, 233:], v[1, :, 233:], k[2, :, 400:] = torch.nan, torch.nan, torch.inf
    for causal in (False, True):
        together = hybrid(Call(q, k, v, Visible(causal, lengths=lengths)), OPTIONS)
        for row, length in enumerate(lengths.tolist()):
            alone = hybrid(Call(*(x[row : row + 1, :, :length] for x in (q, k, v)), Visible(causal)), OPTIONS)
            assert torch.equal(alone.output[0], together.output[row, :, :length])
            assert (together.output[row, :, length:] == 0).all()
            assert torch.equal(alone.coefficients[0], together.coefficients[row])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_answers_in_the_dtype_of_the_queries(dtype):
    call = call_of(600, dtype=dtype, spread=0.6)
    found = hybrid(call, OPTIONS)
    assert found.output.dtype == dtype
    assert relative(found.output, reference(call).output) < 0.1


def test_huge_norms_leave_everything_finite():
    for size in (1e3, 1e9, 1e18):
        for visible in (Visible(), CAUSAL):
            q, k, v = heads_of(500)
            found = hybrid(Call(q * size, k * size, v, visible), OPTIONS)
            assert torch.isfinite(found.output).all()


@pytest.mark.parametrize(("queries", "keys", "batch"), [(0, 5, 1), (5, 0, 1), (0, 0, 1), (5, 5, 0)])
def test_nothing_gives_nothing(queries, keys, batch):
    for visible in (Visible(), CAUSAL):
        q, k, v = heads_of(queries, keys)
        found = hybrid(Call(q[:batch], k[:batch], v[:batch], visible), OPTIONS)
        assert found.output.shape == (batch, 2, queries, 16)
        assert (found.output == 0).all() or keys == queries == 5
        assert found.coefficients.shape == (batch, 2, 3)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("window", {"visible": Visible(window=4)}),
        ("mask", {"visible": Visible(mask=torch.ones(1, 1, 9, 9, dtype=torch.bool))}),
        ("softcap", {"softcap": 3.0}),
        ("sink_logits", {"sink_logits": torch.zeros(2)}),
    ],
)
def test_refuses_what_a_state_cannot_keep(field, options):
    with pytest.raises(ParameterError) as caught:
        hybrid(call_of(9, **options), OPTIONS)
    assert caught.value.field == field


def test_cost_is_linear_in_the_length():
    for visible in (Visible(), CAUSAL):
        one = call_of(4, heads=1, visible=visible)
        calls = [
            Call(*(x[:, :, :1].expand(-1, -1, length, -1) for x in (one.q, one.k, one.v)), visible)
            for length in (4096, 32768)
        ]
        few, many = (cost_of(call, 12, Parts(), calibrated=True) * call.queries**2 for call in calls)
        assert few < many < 8.05 * few


def test_a_state_and_its_exact_parts_weigh_what_they_hold():
    call = call_of(300, dim=64, visible=CAUSAL)
    assert hybrid(call, Options()).state_bytes == 4 * (143 * 65 + (5 * 64 + 4) * 128)
