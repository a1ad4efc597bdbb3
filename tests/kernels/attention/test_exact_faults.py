"""Faults that other attention code had, by their number in the project's list: none of them here."""

import subprocess
import sys

import pytest
import torch
from attention.heads_of import assert_as_reference, call_of, heads_of

from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.fused import fused, why_not_fused
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import ParameterError, ShapeError

INF, NAN = torch.inf, torch.nan
BOTH = pytest.mark.parametrize("statistics", [False, True])


@BOTH
def test_1_queries_whose_mask_is_all_false(statistics):
    mask = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    mask[:, :, 4:] = False
    got = exact(call_of(8, heads=1, visible=Visible(mask=mask)), statistics=statistics)
    assert (got.output[:, :, 4:] == 0).all()
    assert (got.lse[:, :, 4:] == -INF).all()
    assert torch.isfinite(got.output).all()


@BOTH
def test_2_a_padding_row_is_0_and_a_row_of_finfo_min_the_mean(statistics):
    """A finite bias hides nothing from a query that has no other key: only −inf and False do."""
    hidden = torch.zeros(1, 1, 6, 6)
    hidden[..., 5, :] = torch.finfo(torch.float32).min
    call = call_of(6, heads=1, visible=Visible(mask=hidden))
    torch.testing.assert_close(exact(call, statistics=statistics).output[:, :, 5], call.v.mean(2))
    hidden[..., 5, :] = -INF
    assert (exact(call, statistics=statistics).output[:, :, 5] == 0).all()


@BOTH
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("what", ["bool", "float", "lengths", "window"])
def test_4_hidden_keys_and_values_are_not_read(statistics, bad, what):
    q, k, v = heads_of(20)
    allowed = torch.ones(1, 1, 1, 20, dtype=torch.bool)
    allowed[..., 13:] = False
    visible = {
        "bool": Visible(mask=allowed),
        "float": Visible(mask=torch.zeros(1, 1, 1, 20).masked_fill(~allowed, -INF)),
        "lengths": Visible(lengths=torch.tensor([13])),
        "window": Visible(window=1, causal=True),
    }[what]
    want = exact(Call(q, k, v, visible), statistics=statistics)
    k[:, :, 13:], v[:, :, 13:] = bad, bad
    got = exact(Call(q, k, v, visible), statistics=statistics)
    for name in ("output", "lse"):
        torch.testing.assert_close(getattr(got, name)[:, :, :13], getattr(want, name)[:, :, :13])


@BOTH
def test_4_a_value_hidden_from_some_queries_reaches_the_others_alone(statistics):
    q, k, v = heads_of(20)
    v[0, 1, 7, 3] = NAN
    call = Call(q, k, v, Visible(causal=True))
    got = exact(call, statistics=statistics)
    assert_as_reference(got, call)
    bad = torch.zeros(1, 2, 20, 16, dtype=torch.bool)
    bad[0, 1, 7:, 3] = True
    assert torch.equal(torch.isnan(got.output), bad)


@BOTH
@pytest.mark.parametrize("name", ["q", "k"])
def test_5_nan_is_not_answered_with_zeros(statistics, name):
    q, k, v = heads_of(20)
    {"q": q, "k": k}[name][0, 0, 1, 2] = NAN
    got = exact(Call(q, k, v), statistics=statistics)
    rows = [1] if name == "q" else range(20)
    assert torch.isnan(got.output[0, 0, rows]).all()
    assert torch.isnan(got.lse[0, 0, rows]).all()
    assert torch.isfinite(got.output[0, 1]).all()


@BOTH
def test_5_a_bias_however_low_shows_a_bad_key_and_a_blind_query_no_badness(statistics):
    q, k, v = heads_of(9, 4)
    k[0, 1, 2, 0], q[0, 0, :, 3] = INF, NAN
    bias = torch.zeros(1, 1, 9, 4)
    bias[..., 2] = -1e9
    bias[..., 8:, 2] = -INF
    call = Call(q, k, v, Visible(causal=True, mask=bias))
    got = exact(call, statistics=statistics)
    assert torch.isnan(got.lse[0]).tolist() == [[False] * 5 + [True] * 4, [False] * 7 + [True, False]]
    assert_as_reference(got, call)


@BOTH
def test_7_8_more_queries_than_keys_leave_the_first_ones_blind(statistics):
    call = call_of(9, 4, visible=Visible(causal=True))
    got = exact(call, statistics=statistics)
    assert (got.output[:, :, :5] == 0).all()
    assert (got.lse[:, :, :5] == -INF).all()
    assert (got.lse[:, :, 5:] > -INF).all()
    assert_as_reference(got, call)


def test_10_11_a_mask_and_causality_both_count():
    mask = torch.rand(1, 1, 30, 30, generator=torch.Generator().manual_seed(1)) > 0.3
    q, k, v = heads_of(30)
    both = exact(Call(q, k, v, Visible(causal=True, mask=mask)))
    joined = exact(Call(q, k, v, Visible(mask=mask & torch.ones(30, 30, dtype=torch.bool).tril())))
    torch.testing.assert_close(both.output, joined.output)
    padded = exact(Call(q, k, v, Visible(causal=True, lengths=torch.tensor([20]))))
    alone = exact(Call(q[:, :, :20], k[:, :, :20], v[:, :, :20], Visible(causal=True)))
    torch.testing.assert_close(padded.output[:, :, :20], alone.output)
    assert (padded.output[:, :, 20:] == 0).all()


@BOTH
@pytest.mark.parametrize("step", [2, 3])
def test_13_strided_last_dims(statistics, step):
    """Torch's operator takes for granted that the last dim is dense, and answers wrongly where it is not."""
    wide = torch.randn(3, 1, 2, 40, 16 * step, generator=torch.Generator().manual_seed(1))
    call = Call(*wide[..., ::step].unbind(0), Visible(causal=True))
    assert_as_reference(exact(call, statistics=statistics), call)


@BOTH
@pytest.mark.parametrize("dim", [7, 20, 120])
def test_14_the_scale_is_that_of_the_true_dim(statistics, dim):
    q, k, v = heads_of(20, dim=dim)
    got = exact(Call(q, k, v), statistics=statistics)
    torch.testing.assert_close(got.lse, (q @ k.mT / dim**0.5).logsumexp(-1))


def test_16_why_torch_does_not_serve_is_told():
    assert why_not_fused(call_of(9, heads=4, kv_heads=2, dim=300)) is None
    reasons = [
        Visible(window=2), Visible(mask=torch.ones(1, 1, 1, 1, dtype=torch.bool)),
        Visible(causal=True, lengths=torch.tensor([4]))
    ]  # fmt: skip
    told = [why_not_fused(call_of(2, 9, visible=visible)) for visible in reasons]
    told += [why_not_fused(call_of(9, **one)) for one in ({"softcap": 1.0}, {"dim_v": 3}, {"scale": 0.0})]
    told += [why_not_fused(call_of(9, spread=1e20))]
    assert None not in told
    assert len(set(told)) == len(told)
    assert fused(call_of(9, softcap=1.0)) is None


def test_17_heads_that_do_not_divide_are_refused():
    with pytest.raises(ShapeError, match="q: expected a multiple of the 2 KV heads, got 3 heads"):
        call_of(4, heads=3, kv_heads=2)


def test_19_a_mask_for_each_head_of_a_group():
    mask = torch.randn(2, 8, 20, 30, generator=torch.Generator().manual_seed(2))
    call = call_of(20, 30, batch=2, heads=8, kv_heads=2, visible=Visible(mask=mask))
    assert_as_reference(exact(call), call)


EMPTY = """
import torch
from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.reference import reference
for batch, queries, keys in [(0, 2, 2), (1, 0, 3), (1, 3, 0), (1, 0, 0)]:
    for causal in (False, True):
        for method in (exact, reference, lambda call: exact(call, statistics=False)):
            given = (torch.zeros(batch, 2, length, 4) for length in (queries, keys, keys))
            got = method(Call(*given, Visible(causal=causal)))
            assert got.output.shape == (batch, 2, queries, 4) and (got.output == 0).all()
            assert got.lse.shape == (batch, 2, queries) and (got.lse == -torch.inf).all()
"""


def test_20_22_nothing_to_attend():
    """In a process of its own: torch's operator divides by zero there and ends the process."""
    subprocess.run([sys.executable, "-c", EMPTY], check=True)


@BOTH
@pytest.mark.parametrize("keys", [65_536, 65_537, 70_000])
def test_23_masks_longer_than_16_bits(statistics, keys):
    mask = torch.ones(1, 1, 2, keys, dtype=torch.bool)
    mask[..., : keys - 3] = False
    q, k, v = heads_of(2, keys, dim=2)
    got = exact(Call(q, k, v, Visible(mask=mask)), statistics=statistics)
    torch.testing.assert_close(got.output, exact(Call(q, k[:, :, -3:], v[:, :, -3:])).output)


@BOTH
def test_23_offsets_pass_2_to_the_31(statistics):
    far = torch.empty(2**31 + 4096, dtype=torch.float16).as_strided((1, 2, 64, 16), (1, 2**31, 16, 1))
    q, k, v = heads_of(64, dtype=torch.float16)
    far[:] = k
    for call in (Call(q, far, v), Call(q, k, far), Call(far, k, v)):
        assert_as_reference(exact(call, statistics=statistics), call, 2e-3)


@BOTH
@pytest.mark.parametrize("low", [torch.finfo(torch.float32).min, -1e30, -1e9, torch.finfo(torch.float16).min])
def test_25_large_finite_biases(statistics, low):
    hidden = torch.rand(1, 1, 40, 700, generator=torch.Generator().manual_seed(5)) < 0.6
    hidden[..., :600] |= torch.arange(40)[:, None] % 2 == 0  # the first tile of keys has only such
    call = call_of(40, 700, visible=Visible(mask=hidden * low))
    got = exact(call, statistics=statistics)
    assert_as_reference(got, call)
    assert all(torch.isfinite(part).all() for part in (got.output, got.lse, got.entropy) if part is not None)
    hidden[:] = True
    got = exact(call_of(40, 700, visible=Visible(mask=hidden * low)), statistics=statistics)
    if low == -65504:
        torch.testing.assert_close(got.output, exact(Call(call.q, call.k, call.v)).output, rtol=0, atol=0.01)
    else:  # low + score rounds to low
        torch.testing.assert_close(got.output, call.v.mean(2, keepdim=True).expand(-1, -1, 40, -1))


@BOTH
def test_26_lse_is_a_natural_logarithm(statistics):
    got = exact(call_of(3, 50, scale=0.0, visible=Visible(lengths=torch.tensor([20]))), statistics=statistics)
    torch.testing.assert_close(got.lse, torch.full((1, 2, 3), 20.0).log())


@BOTH
@pytest.mark.parametrize("causal", [False, True])
def test_41_a_window_counts_the_query_itself(statistics, causal):
    """W keys back to p − W + 1 and, without causality, as many ahead."""
    v = torch.eye(9)[None, None]
    seen = exact(call_of(9, heads=1, dim=9, scale=0.0, visible=Visible(causal=causal, window=3)), statistics=statistics)
    weights = exact(Call(v * 0, v * 0, v, Visible(causal=causal, window=3)), statistics=statistics).output[0, 0]
    assert weights[5].nonzero().flatten().tolist() == ([3, 4, 5] if causal else [3, 4, 5, 6, 7])
    torch.testing.assert_close(seen.lse[0, 0, 5].exp(), torch.tensor(3.0 if causal else 5.0))


@BOTH
@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_causal_scale_that_is_not_positive(statistics, scale):
    """Torch's operator multiplies the −inf of what is hidden by the scale: NaN, or +inf."""
    call = call_of(30, scale=scale, visible=Visible(causal=True))
    assert_as_reference(exact(call, statistics=statistics), call)


@BOTH
@pytest.mark.parametrize("spread", [1e18, 1e20, 1e38])
def test_scores_beyond_float32_are_computed_in_float64(statistics, spread):
    """In float32 they are inf − inf, or a −inf that looks like a hidden key."""
    q, k, v = (one.clamp(-3, 3) for one in heads_of(5))
    call = Call(q * spread, k * spread, v, Visible(causal=True))
    got = exact(call, statistics=statistics)
    torch.testing.assert_close(got.output.double(), reference(call).output, rtol=1e-6, atol=1e-6)


def test_masks_that_say_nothing_clear_are_refused():
    for bad in (NAN, INF):
        with pytest.raises(ParameterError, match="mask"):
            call_of(4, visible=Visible(mask=torch.full((1, 1, 4, 4), bad)))
    assert reference(call_of(4, visible=Visible(mask=torch.full((1, 1, 4, 4), -INF)))).output.eq(0).all()


@BOTH
@pytest.mark.parametrize("visible", [Visible(), Visible(causal=True), Visible(window=7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_whose_sum_passes_float32(statistics, visible, dtype):
    q, k, v = heads_of(20, dtype=dtype)
    got = exact(Call(q, k, torch.full_like(v, 3e38), visible), statistics=statistics)
    torch.testing.assert_close(got.output, torch.full_like(v, 3e38))


@BOTH
@pytest.mark.parametrize("scale", [1e30, 1e38, 1e300, -1e300])
def test_a_scale_that_passes_float32(statistics, scale):
    """Logits are float64 then, their LSE may not fit the answer's float32, and the output is right."""
    call = call_of(20, scale=scale)
    got = exact(call, statistics=statistics).output.double()
    torch.testing.assert_close(got, reference(call).output, rtol=1e-5, atol=1e-5)


@BOTH
@pytest.mark.parametrize("most", [2**31, 2**62, 2**63 - 1, 2**70])
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_past_all_keys_is_none(statistics, most, causal):
    for queries, keys in ((30, 30), (9, 30), (30, 9)):
        q, k, v = heads_of(queries, keys)
        want = exact(Call(q, k, v, Visible(causal=causal)))
        for visible in (
            Visible(causal=causal, window=most),
            Visible(causal=causal, window=1, sinks=most),
            Visible(causal=causal, window=most, sinks=most),
        ):
            got = exact(Call(q, k, v, visible), statistics=statistics)
            torch.testing.assert_close(got.output, want.output)
            torch.testing.assert_close(got.lse, want.lse)
