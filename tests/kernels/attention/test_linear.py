"""Linear attention against its own definition, O(L²) with the same features: chunks, alignments, lengths, norms."""

from dataclasses import replace

import pytest
import torch
from attention.features_of import CAUSAL, SMALL, assert_near, definition, moments_of
from attention.heads_of import call_of, heads_of

from logitd_kernels.attention.call import Call, Options, Visible
from logitd_kernels.attention.features.registry import METHODS
from logitd_kernels.attention.linear import linear
from logitd_kernels.attention.nystrom import nystrom
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import ParameterError

LENGTHS = [1, 63, 64, 65, 127, 129]
EXPONENTIAL = ["favor_plus", "favor_plus_plus", "favor_sharp", "derf", "hyperbolic"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_its_definition(method, causal, length):
    call = call_of(length, **SMALL, dim_v=5, visible=Visible(causal=causal))
    want = definition(call, method)
    for chunk in (128, 1, 16, 37, 1000):
        got = linear(call, method, Options(chunk=chunk))
        assert got.output.dtype == torch.float32
        assert_near(got.output, want)


@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 65), (65, 1), (20, 65), (65, 20), (64, 129), (0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("method", ["favor_plus", "derf", "trig", "cosformer"])
def test_alignments(method, queries, keys, causal, align):
    call = call_of(queries, keys, **SMALL, visible=Visible(causal=causal, align=align))
    want = definition(call, method)
    for chunk in (128, 16):
        got = linear(call, method, Options(chunk=chunk))
        assert_near(got.output, want)
        blind = ~call.seen(torch.arange(queries), torch.arange(keys)).any(-1)[0, 0]
        assert (got.output[:, :, blind] == 0).all()
        if method in EXPONENTIAL:
            assert got.nonpositive_rows.tolist() == [[0, 0]]


@pytest.mark.parametrize("method", METHODS)
def test_shared_kv_heads(method):
    call = call_of(40, **SMALL, heads=8, kv_heads=2, visible=CAUSAL)
    assert_near(linear(call, method, Options(chunk=16)).output, definition(call, method))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
def test_dtypes_and_odd_dims(method, dtype, causal):
    call = call_of(70, dim=7, spread=0.5, dim_v=3, dtype=dtype, visible=Visible(causal=causal))
    got = linear(call, method, Options()).output
    assert got.dtype == dtype
    tolerance = {torch.float64: 1e-10, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]
    assert_near(got, definition(call, method), tolerance)


def test_strides_do_not_matter():
    q, k, v = heads_of(70, dim=16)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    got = [linear(Call(*one, visible=CAUSAL), "favor_plus", Options()).output for one in ((q, k, v), turned)]
    assert_near(got[0], got[1], 1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
def test_lengths_and_batch_mates(method, causal):
    """Padding is never read, and a row's bits are its own."""
    q, k, v = heads_of(70, batch=4, **SMALL)
    lengths = torch.tensor([70, 0, 33, 1])
    for row, length in enumerate(lengths.tolist()):
        q[row, :, length:], k[row, :, length:], v[row, :, length:] = torch.nan, torch.inf, torch.nan
    got = linear(Call(q, k, v, Visible(causal=causal, lengths=lengths)), method, Options(chunk=16))
    assert got.nonpositive_rows.sum() == 0 or method == "cosformer"
    for row, length in enumerate(lengths.tolist()):
        alone = Call(*(x[row : row + 1, :, :length] for x in (q, k, v)), Visible(causal=causal))
        one = linear(alone, method, Options(chunk=16))
        assert torch.equal(got.output[row : row + 1, :, :length], one.output)
        assert (got.output[row, :, length:] == 0).all()
        assert torch.equal(got.nonpositive_rows[row], one.nonpositive_rows[0])


def test_lengths_of_fewer_queries():
    q, k, v = heads_of(9, 40, batch=3, **SMALL)
    lengths = torch.tensor([40, 5, 0])
    call = Call(q, k, v, Visible(causal=True, lengths=lengths))
    got = linear(call, "favor_plus", Options(chunk=16)).output
    for row, length in enumerate(lengths.tolist()):
        alone = Call(q[row : row + 1], k[row : row + 1, :, :length], v[row : row + 1, :, :length], CAUSAL)
        assert_near(got[row : row + 1], definition(alone, "favor_plus"))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("huge", [1.0, 50.0, 1e4])
def test_the_future_does_not_leak(method, huge):
    """Whatever comes after a prefix, and however large, the prefix stays, inside a chunk too."""
    call = call_of(150, **SMALL, visible=CAUSAL)
    moments = moments_of(call)
    before = linear(call, method, Options(), moments)
    for prefix in (1, 63, 100, 128, 140):
        q, k, v = (x.clone() for x in (call.q, call.k, call.v))
        for x in (q, k, v):
            x[:, :, prefix:] = huge * x[:, :, prefix:].flip(2)
        after = linear(Call(q, k, v, CAUSAL), method, Options(), moments)
        assert_near(after.output[:, :, :prefix], before.output[:, :, :prefix])


@pytest.mark.parametrize("spread", [1e1, 1e3, 1e6, 1e18, 1e30])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_huge_norms_stay_finite(method, causal, spread):
    call = call_of(150, dim=8, spread=spread, visible=Visible(causal=causal))
    got = linear(call, method, Options())
    assert torch.isfinite(got.output).all()
    if method in EXPONENTIAL:
        assert got.nonpositive_rows.sum() == 0
        assert float(got.output.abs().max()) <= float(call.v.abs().max()) * (1 + 1e-5)


@pytest.mark.parametrize("method", EXPONENTIAL)
@pytest.mark.parametrize("causal", [False, True])
def test_large_norms_stay_right(method, causal):
    """Exponents of ±100 and keys that differ by e^80: float64 holds them unscaled, float32 with its scales."""
    q, k, v = heads_of(100, dim=8, spread=5.0)
    k = k * torch.linspace(0.2, 2, 100)[torch.randperm(100, generator=torch.Generator().manual_seed(0)), None]
    call = Call(q, k, v, Visible(causal=causal), scale=1.0)
    got = linear(call, method, Options())
    assert got.nonpositive_rows.sum() == 0
    assert_near(got.output, definition(call, method), 1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
def test_scale_0_is_the_mean(method, causal):
    call = call_of(70, dim=8, scale=0.0, visible=Visible(causal=causal))
    got = linear(call, method, Options(chunk=16))
    if method == "cosformer":  # relu(0) weighs nothing
        assert got.nonpositive_rows.tolist() == [[70, 70]]
        assert (got.output == 0).all()
    else:
        assert_near(got.output, reference(call).output)


@pytest.mark.parametrize("method", METHODS)
def test_a_negative_scale_turns_the_queries(method):
    call = call_of(70, **SMALL, scale=-0.4)
    turned = replace(call, q=-call.q, scale=0.4)
    assert torch.equal(linear(call, method, Options()).output, linear(turned, method, Options()).output)


def test_normalisers_that_are_not_positive_are_counted():
    call = call_of(64, 256, dim=16, spread=3.0)
    got = linear(call, "trig", Options(feature_dim=32))
    assert (got.nonpositive_rows > 10).all()
    assert torch.equal((got.output == 0).all(-1).sum(-1), got.nonpositive_rows)


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_decides_the_bits(method):
    call = call_of(70, **SMALL)
    first = linear(call, method, Options(seed=1)).output
    assert torch.equal(linear(call, method, Options(seed=1)).output, first)
    other = torch.equal(linear(call, method, Options(seed=2)).output, first)
    assert other is not METHODS[method].approximates


@pytest.mark.parametrize("method", [*METHODS, "nystrom"])
def test_what_cannot_be_kept_is_refused(method):
    q, k, v = heads_of(5, dim=4)

    def run(**options):
        call = Call(q, k, v, **options)
        return nystrom(call, Options()) if method == "nystrom" else linear(call, method, Options())

    for field, options in {
        "window": {"visible": Visible(window=2)},
        "mask": {"visible": Visible(mask=torch.ones(1, 1, 5, 5, dtype=torch.bool))},
        "softcap": {"softcap": 5.0},
        "sink_logits": {"sink_logits": torch.zeros(2)},
    }.items():
        with pytest.raises(ParameterError, match=f"{field}: {method} keeps padding lengths"):
            run(**options)


@pytest.mark.parametrize("chunk", [0, -1, True, 2.0])
def test_chunks_are_checked(chunk):
    with pytest.raises(ParameterError, match="chunk"):
        linear(call_of(5, dim=4), "elu", Options(chunk=chunk))


def test_an_unknown_method():
    with pytest.raises(ParameterError, match="method: must be one of favor_plus"):
        linear(call_of(5, dim=4), "performer", Options())


def test_no_batch_at_all():
    got = linear(call_of(5, batch=0, dim=4), "derf", Options())
    assert got.output.shape == (0, 2, 5, 4)
    assert got.nonpositive_rows.shape == (0, 2)


def test_state_and_cost():
    """m = 256 of d = dv = 64: projections 64·256, sums and reads 256·65, inside a chunk (256 + 65)·128."""
    call = call_of(1024, dim=64)
    got = linear(call, "favor_plus", Options())
    assert got.state_bytes == (256 * 65 + 256) * 4
    assert got.cost == pytest.approx(2 * (64 * 256 + 256 * 65) / (1024 * 128))
    inside = (256 + 65) * 128 / (1024 * 128)
    causal = linear(replace(call, visible=CAUSAL), "favor_plus", Options())
    assert causal.cost == pytest.approx(got.cost + inside)
    assert linear(call, "derf", Options()).cost == pytest.approx(got.cost + 2 * 64 * 64 / (1024 * 128))
