"""The moment state: exact algebra in its coordinates, sums equal to the polynomial's definition, a safe normaliser."""

import math

import pytest
import torch
from attention.heads_of import call_of, heads_of
from torch.testing import assert_close

from logitd_kernels.attention.call import Call, Options, Visible
from logitd_kernels.attention.mean import mean_v
from logitd_kernels.attention.moment.attend import moment
from logitd_kernels.attention.moment.calibrate import calibrate
from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import ParameterError

CAUSAL = Visible(causal=True)
CALLS = {
    "plain": {"queries": 70, "keys": 90},
    "gqa": {"queries": 40, "keys": 50, "heads": 4, "kv_heads": 2, "dim_v": 5},
    "few": {"queries": 9, "keys": 3, "batch": 2},
    "one key": {"queries": 5, "keys": 1},
    "negative scale": {"queries": 33, "keys": 44, "scale": -0.3},
    "lengths": {"queries": 40, "batch": 4, "visible": Visible(lengths=torch.tensor([40, 1, 0, 17]))},
    "causal": {"queries": 300, "visible": CAUSAL},
    "causal, fewer queries": {"queries": 70, "keys": 290, "visible": CAUSAL},
    "causal, more queries": {"queries": 70, "keys": 20, "visible": CAUSAL},
    "causal, top left": {"queries": 70, "keys": 20, "visible": Visible(causal=True, align="top_left")},
    "causal, lengths": {
        "queries": 30,
        "keys": 60,
        "batch": 3,
        "visible": Visible(causal=True, lengths=torch.tensor([60, 11, 0])),
    },
}


def by_definition(call, basis):
    """Every weight of the docstring's formula, in float64."""
    output = torch.zeros(*call.q.shape[:3], call.v.shape[3], dtype=torch.float64)
    seen = call.seen(torch.arange(call.queries), torch.arange(call.keys))[:, 0]
    k, v = (x.double().repeat_interleave(call.group, 1) for x in (call.k, call.v))
    for row in range(call.batch):
        for head in range(call.heads):
            own = basis[row][head].to(torch.float64)
            x, keys = call.q[row, head].double() * call.scaling - own.query_centre, k[row, head] - own.key_centre
            w = torch.exp(keys @ own.query_centre) * seen[row]
            share = w / w.sum(1, keepdim=True)
            inner, low = x @ keys.T, (x @ own.query_map.T) @ (keys @ own.key_map.T).T
            inner = inner - (share * inner).sum(1, keepdim=True)
            low = low - (share * low).sum(1, keepdim=True)
            variance = (share * low**2).sum(1, keepdim=True)
            w = w * (1 - variance.clamp(max=1) / 2 + inner + low**2 / 2)
            output[row, head] = torch.nan_to_num(w @ v[row, head] / w.sum(1, keepdim=True))
    return output


def relative(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("name", CALLS)
def test_equals_its_definition(name):
    call = call_of(**CALLS[name])
    found = moment(call, Options(rank=6, chunk=32))
    assert_close(found.output.double(), by_definition(call, calibrate(call, 6)), rtol=1e-4, atol=1e-5)
    assert not found.nonpositive_rows.any()


@pytest.mark.parametrize("visible", [Visible(), CAUSAL])
def test_does_not_depend_on_where_keys_are_centred_or_how_scales_are_shared(visible):
    q, k, v = heads_of(120, dim=8, dtype=torch.float64)
    stretch = torch.diag(torch.logspace(-1, 1, 8).double()) + 0.1
    want = moment(Call(q, k, v, visible), Options(rank=4)).output
    shifted = moment(Call(q, k + 3, v, visible), Options(rank=4)).output
    assert_close(shifted, want, rtol=1e-5, atol=1e-5)
    stretched = Call(q @ stretch, k @ torch.linalg.inv(stretch).T, v, visible)
    assert (
        relative(moment(stretched, Options(rank=8)).output, moment(Call(q, k, v, visible), Options(rank=8)).output)
        < 1e-5
    )


def test_constant_keys_give_the_mean_exactly():
    q, k, v = heads_of(50, 70)
    for visible in (Visible(), CAUSAL):
        call = Call(q * 30, k[:, :, :1].expand_as(k), v, visible)
        assert_close(moment(call, Options()).output, mean_v(call).output, rtol=1e-5, atol=1e-6)


def test_scale_0_gives_the_mean():
    call = call_of(50, 70, scale=0.0)
    assert_close(moment(call, Options()).output, mean_v(call).output, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 7, 64, 128, 500])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_any_chunking_is_the_state_fed_key_by_key(chunk, spread):
    call = call_of(200, dim=8, spread=spread, visible=CAUSAL)
    basis = calibrate(call, 4)
    state = MomentState(basis[0], call.v.shape[3])
    one_by_one = []
    for token in range(200):
        state.append(call.k[0, :, token : token + 1], call.v[0, :, token : token + 1])
        reading = state.read(call.q[0, :, token : token + 1] * call.scaling)
        one_by_one.append(reading.numerator / reading.denominator[..., None])
    found = moment(call, Options(chunk=chunk), basis[0]).output[0]
    assert relative(found, torch.cat(one_by_one, 1)) < 1e-5


def test_later_tokens_do_not_reach_earlier_answers():
    q, k, v = heads_of(600, dim=8)
    later = k.clone()
    later[:, :, 500:] *= 40
    found = [moment(Call(q, keys, v, CAUSAL), Options()).output[:, :, :500] for keys in (k, later)]
    assert_close(found[0], found[1], rtol=1e-6, atol=1e-6)


def test_a_later_key_of_enormous_weight_leaves_earlier_answers():
    q, k, v = heads_of(64, dim=4, heads=1)
    basis = calibrate(Call(q, k, v), 2)
    want = moment(Call(q, k, v, CAUSAL), Options(), basis).output[:, :, :60]
    k[:, :, 60] = 1e4 * basis.query_centre[:, :] / basis.query_centre.norm()
    assert_close(moment(Call(q, k, v, CAUSAL), Options(), basis).output[:, :, :60], want, rtol=1e-5, atol=1e-5)


def test_a_sequence_does_not_depend_on_its_mates_or_its_padding():
    q, k, v = heads_of(90, batch=3)
    lengths = torch.tensor([90, 33, 64])
    k[1, :, 33:], v[1, :, 33:], k[2, :, 64:] = torch.nan, torch.nan, torch.inf
    for causal in (False, True):
        together = moment(Call(q, k, v, Visible(causal, lengths=lengths)), Options())
        assert (together.output[1, :, 33:] == 0).all()
        for row, length in enumerate(lengths.tolist()):
            alone = Call(*(x[row : row + 1, :, :length] for x in (q, k, v)), Visible(causal))
            assert_close(moment(alone, Options()).output[0], together.output[row, :, :length], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("squared", "most"), [(0.5, 0.0018), (1.0, 0.014), (2.0, 0.108)])
def test_table_1(squared, most):
    """Reference table T1: L = 1024, d = 16, q', k' ~ N(0, R²/16), V normal, full quadratic: twice its figures."""
    errors, of_mean = [], []
    for seed in range(3):
        call = Call(*heads_of(1024, heads=8, spread=math.sqrt(squared / 16), seed=seed), scale=1.0)
        want = reference(call).output
        errors.append(relative(moment(call, Options(rank=16)).output, want))
        of_mean += [relative(*pair) for pair in zip(mean_v(call).output[0], want[0], strict=True)]
    assert max(errors) < most
    assert sum(of_mean) / 24 == pytest.approx(math.sqrt(1 - math.exp(-(squared**2) / 16)), rel=0.08)


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
        moment(call_of(9, **options), Options())
    assert caught.value.field == field


@pytest.mark.parametrize(("field", "options"), [("rank", Options(rank=0)), ("chunk", Options(chunk=0))])
def test_refuses_numbers_that_are_none(field, options):
    with pytest.raises(ParameterError) as caught:
        moment(call_of(9), options)
    assert caught.value.field == field


def test_huge_norms_leave_everything_finite():
    for size in (1e4, 1e9, 1e18):
        for visible in (Visible(), CAUSAL):
            call = Call(*(x * size for x in heads_of(100)[:2]), heads_of(100)[2], visible)
            found = moment(call, Options())
            assert torch.isfinite(found.output).all()
            assert size > 1e4 or not found.nonpositive_rows.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_answers_in_the_dtype_of_the_queries(dtype):
    call = call_of(300, dtype=dtype, spread=0.5)
    found = moment(call, Options()).output
    assert found.dtype == dtype
    assert relative(found, reference(call).output) < 0.06


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_gives_nothing(queries, keys):
    for visible in (Visible(), CAUSAL):
        found = moment(call_of(queries, keys, visible=visible), Options())
        assert found.output.shape == (1, 2, queries, 16)
        assert (found.output == 0).all()
        assert not found.nonpositive_rows.any()
    assert moment(call_of(4, batch=1).select(slice(0, 1)), Options()).output.shape == (1, 1, 4, 16)
