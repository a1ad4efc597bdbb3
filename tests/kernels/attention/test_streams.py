"""Streams: one answer for any pieces, that of one call; bounded state; exports that continue on the same bits."""

import math

import pytest
import torch
from attention.heads_of import heads_of

from logitd_kernels.attention import Call, Options, Visible, exact
from logitd_kernels.attention.hybrid import hybrid
from logitd_kernels.attention.linear import linear
from logitd_kernels.attention.moment.attend import moment
from logitd_kernels.attention.streams import STREAMS, StreamSetting, open_stream, restore_stream
from logitd_kernels.errors import ParameterError, ShapeError

CAUSAL = Visible(causal=True)


def sequence(tokens, heads=2, kv_heads=None, dim=16, dim_v=None, spread=0.7):
    q, k, v = heads_of(tokens, heads=heads, kv_heads=kv_heads, dim=dim, dim_v=dim_v, spread=spread)
    return q[0], k[0], v[0]


def opened(method, q, k, v, **options):
    setting = StreamSetting(method, len(q), len(k), q.shape[2], v.shape[2], options=Options(**options))
    return open_stream(setting)


def fed(stream, q, k, v, sizes):
    """Append in pieces of these sizes, asking of every token; the answers together."""
    answers, start = [], 0
    for size in sizes:
        piece = slice(start, start + size)
        answers.append(stream.attend(q[:, piece], k[:, piece], v[:, piece]))
        start += size
    assert start == q.shape[1]
    return torch.cat(answers, 1)


def in_one_call(method, q, k, v):
    call = Call(q[None], k[None], v[None], CAUSAL)
    if method == "exact":
        return exact(call).output[0]
    if method in ("hybrid", "moment"):
        return {"hybrid": hybrid, "moment": moment}[method](call, Options()).output[0]
    return linear(call, method, Options()).output[0]


@pytest.mark.parametrize("method", STREAMS)
@pytest.mark.parametrize("sizes", [[700], [1] * 40 + [660], [256, 444], [63, 1, 65, 129, 442], [320, 64, 316]])
def test_a_stream_answers_as_one_call_does(method, sizes):
    q, k, v = sequence(700, heads=4, kv_heads=2, dim_v=8)
    q, k = q * 0.5, k * 0.5
    stream = opened(method, q, k, v)
    found, want = fed(stream, q, k, v, sizes), in_one_call(method, q, k, v)
    first = 256 if method == "moment" else 0  # the stream is exact until its coordinates are fitted
    torch.testing.assert_close(found[:, first:], want[:, first:], rtol=0, atol=2e-5 * float(want.abs().max()))
    torch.testing.assert_close(stream.read(q[:, -1:]), want[:, -1:], rtol=0, atol=2e-5 * float(want.abs().max()))
    assert stream.tokens == 700


def test_what_is_near_is_exact():
    q, k, v = sequence(320, spread=3)
    for method, tokens in (("hybrid", 320), ("moment", 256)):
        found = fed(opened(method, q, k, v), q, k, v, [320])
        want = in_one_call("exact", q, k, v)
        torch.testing.assert_close(found[:, :tokens], want[:, :tokens], rtol=0, atol=1e-5)


def test_the_first_keys_stay_exact_and_the_far_ones_count():
    q, k, v = sequence(3000, spread=0.4)
    k[:, 2] *= 60  # a sink
    q += 2 * k[:, 2:3] / torch.linalg.norm(k[:, 2:3], dim=-1, keepdim=True)
    want = in_one_call("exact", q, k, v)[:, 1000:]
    found = fed(opened("hybrid", q, k, v), q, k, v, [3000])[:, 1000:]
    assert torch.linalg.norm(found - want) / torch.linalg.norm(want) < 0.05
    window = exact(Call(q[None], k[None], v[None], Visible(causal=True, window=256, sinks=4))).output[0, :, 1000:]
    assert torch.linalg.norm(window - want) > 3 * torch.linalg.norm(found - want)


@pytest.mark.parametrize("method", STREAMS)
def test_appending_alone_is_the_same_state(method):
    q, k, v = sequence(500)
    silent, asked = opened(method, q, k, v), opened(method, q, k, v)
    assert silent.attend(None, k, v) is None
    few = asked.attend(q[:, -3:], k, v)
    assert few.shape == (2, 3, 16)
    torch.testing.assert_close(silent.read(q[:, -1:]), few[:, -1:], rtol=0, atol=1e-4)
    assert silent.tokens == asked.tokens == 500
    torch.testing.assert_close(silent.attend(q[:, :0], k[:, :0], v[:, :0]), q[:, :0])


@pytest.mark.parametrize("method", STREAMS)
@pytest.mark.parametrize("tokens", [0, 1, 100, 256, 300, 320, 321, 777])
def test_an_export_continues_on_the_same_bits(method, tokens):
    q, k, v = sequence(1000, heads=4, kv_heads=2)
    stream = opened(method, q, k, v, seed=5, rank=6)
    stream.attend(q[:, :tokens], k[:, :tokens], v[:, :tokens])
    other = restore_stream(stream.setting, stream.export())
    assert other.tokens == tokens
    assert other.bytes <= stream.bytes
    for start in (tokens, tokens + 100):
        new = slice(start, start + 100)
        here, there = (one.attend(q[:, new], k[:, new], v[:, new]) for one in (stream, other))
        assert torch.equal(here, there)
    assert torch.equal(stream.read(q[:, :5]), other.read(q[:, :5]))


@pytest.mark.parametrize("method", [method for method in STREAMS if method != "exact"])
def test_the_state_stays_as_large_as_it_is(method):
    q, k, v = sequence(256, dim=8)
    stream = opened(method, q, k, v)
    sizes = []
    for _ in range(8):
        assert stream.growth(256) == 0 or not sizes
        stream.attend(q, k, v)
        sizes.append(stream.bytes)
    assert len(set(sizes[2:])) == 1


def test_the_exact_stream_says_how_it_grows():
    q, k, v = sequence(100)
    stream = opened("exact", q, k, v)
    for _ in range(5):
        wanted = stream.bytes + stream.growth(100)
        stream.attend(None, k, v)
        assert stream.bytes == wanted


def test_no_queries_for_the_first_tokens():
    """Keys then stand in for them: the answers are worse, and there."""
    q, k, v = sequence(2000, spread=0.5)
    want = in_one_call("exact", q, k, v)[:, -500:]
    for method in ("moment", "hybrid"):
        stream = opened(method, q, k, v)
        stream.attend(None, k[:, :1500], v[:, :1500])
        found = stream.attend(q[:, 1500:], k[:, 1500:], v[:, 1500:])
        assert torch.linalg.norm(found - want) / torch.linalg.norm(want) < 0.2


def test_constant_keys_give_the_mean():
    q, k, v = sequence(1000)
    k = k[:, :1].expand_as(k)
    want = (v.cumsum(1) / torch.arange(1, 1001)[:, None])[:, -100:]
    for method in ("exact", "moment", "hybrid"):
        found = fed(opened(method, q, k, v), q, k, v, [1000])[:, -100:]
        torch.testing.assert_close(found, want, rtol=0, atol=1e-5)


def test_a_long_stream_keeps_its_digits():
    """65,536 tokens one chunk at a time: the state holds the sums that float64 has."""
    q, k, v = sequence(1024, heads=1, dim=4, spread=0.5)
    for method in ("moment", "hybrid"):
        stream = opened(method, q, k, v)
        for _ in range(64):
            stream.attend(q, k, v)
        scores = (q[:, :50].double() @ k.double().mT) / math.sqrt(4)
        wide = torch.softmax(scores, 2) @ v.double()  # of a sequence that repeats, as of one repetition
        error = torch.linalg.norm(stream.read(q[:, :50]).double() - wide) / torch.linalg.norm(wide)
        assert error < 0.02
        assert stream.tokens == 65_536


CANNOT = [
    ("magic", {}, "method"),
    ("favor_sharp", {}, "method"),
    ("cosformer", {}, "method"),
    ("moment", {"rank": 0}, "rank"),
    ("hybrid", {"rank": 0}, "rank"),
    ("trig", {"feature_dim": 1}, "feature_dim"),
]


@pytest.mark.parametrize(("method", "options", "field"), CANNOT)
def test_what_cannot_stream_is_named(method, options, field):
    with pytest.raises(ParameterError) as caught:
        opened(method, *sequence(1), **options)
    assert caught.value.field == field


def test_other_shapes_are_named():
    q, k, v = sequence(10)
    stream = opened("moment", q, k, v)
    for own_q, own_k, own_v, field in (
        (q[:1], k, v, "q"),
        (q, k[..., :3], v, "k"),
        (q, k, v[:, :9], "v"),
        (q, k[:, :5], v[:, :5], "q"),
    ):
        with pytest.raises(ShapeError) as caught:
            stream.attend(own_q, own_k, own_v)
        assert caught.value.field == field
    assert stream.tokens == 0


def test_heads_of_several_methods():
    q, k, v = sequence(500, heads=4, kv_heads=2)
    modes = ("moment", "exact", "moment", "hybrid")
    split = open_stream(StreamSetting("exact", 4, 2, 16, 16, modes=modes))
    found = fed(split, q, k, v, [100, 1, 399])
    wide_k, wide_v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    for head, method in enumerate(modes):
        one = slice(head, head + 1)
        alone = opened(method, q[one], wide_k[one], wide_v[one])
        want = fed(alone, q[one], wide_k[one], wide_v[one], [100, 1, 399])
        torch.testing.assert_close(found[one], want, rtol=0, atol=1e-5)
        if method != "exact":
            assert split.early_error[head] == pytest.approx(float(alone.early_error[0]), rel=1e-3)
    assert math.isnan(split.early_error[1])
    other = restore_stream(split.setting, split.export())
    assert torch.equal(other.read(q[:, :3]), split.read(q[:, :3]))


def test_the_early_error_is_that_of_second_order():
    for spread, low, high in ((0.3, 0.0, 0.03), (2.5, 0.3, 10.0)):
        q, k, v = sequence(400, spread=spread)
        for method in ("moment", "hybrid"):
            stream = opened(method, q, k, v)
            assert stream.early_error is None
            stream.attend(q, k, v)
            assert (low < stream.early_error).all()
            assert (stream.early_error < high).all()
