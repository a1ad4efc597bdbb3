"""Exact attention against its definition in float64, whatever hides keys, whatever the tiles and the layout."""

import pytest
import torch
from attention.heads_of import assert_as_reference, call_of, heads_of
from hypothesis import given
from hypothesis import strategies as st
from rows_of import law

from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.exact import Tile, exact

LENGTHS = [(0, 0), (0, 5), (5, 0), (1, 1), (1, 65), (63, 63), (64, 64), (65, 65), (129, 129), (65, 129), (129, 63)]
SMALL = Tile(queries=16, keys=24)
INF = torch.inf


def check(call, tolerance=1e-5):
    for tile in (Tile(), SMALL):
        assert_as_reference(exact(call, tile=tile), call, tolerance)
    assert_as_reference(exact(call, statistics=False), call, tolerance)
    assert_as_reference(exact(call, statistics=False, tile=SMALL), call, tolerance)


@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_causal_and_lengths(queries, keys, causal, align):
    check(call_of(queries, keys, visible=Visible(causal=causal, align=align)))


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (4, 1), (6, 6)])
@pytest.mark.parametrize(("queries", "keys"), [(65, 65), (3, 40), (40, 3)])
def test_query_heads_share_kv_heads(queries, keys, heads, kv_heads):
    check(call_of(queries, keys, batch=2, heads=heads, kv_heads=kv_heads, visible=Visible(causal=True)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize(("queries", "keys"), [(65, 65), (7, 65), (65, 7), (1, 65)])
def test_padding(queries, keys, align, causal):
    lengths = torch.tensor([0, keys, 1, keys // 2])
    check(call_of(queries, keys, batch=4, visible=Visible(causal=causal, align=align, lengths=lengths)))


@pytest.mark.parametrize("shape", [(2, 4, 33, 50), (1, 1, 33, 50), (2, 1, 1, 50), (1, 4, 33, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("kind", ["bool", "float", "half"])
@pytest.mark.parametrize("causal", [False, True])
def test_masks(shape, kind, causal):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    hidden = drawn < -0.5
    hidden[..., :2, :] |= shape[2] > 2  # some queries see nothing
    mask = ~hidden if kind == "bool" else (drawn.half() if kind == "half" else drawn * 3).masked_fill(hidden, -INF)
    lengths = torch.tensor([50, 20])
    for visible in (Visible(causal, mask=mask), Visible(causal, mask=mask, lengths=lengths, window=9, sinks=2)):
        check(call_of(33, 50, batch=2, heads=4, kv_heads=2, visible=visible))


@pytest.mark.parametrize("window", [1, 2, 17, 64, 1000])
@pytest.mark.parametrize("sinks", [0, 1, 4, 70])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(129, 129), (20, 90), (90, 20)])
def test_window_and_sinks(queries, keys, causal, sinks, window):
    check(call_of(queries, keys, visible=Visible(causal=causal, window=window, sinks=sinks)))


@pytest.mark.parametrize("visible", [Visible(), Visible(causal=True), Visible(window=3, lengths=torch.tensor([9, 0]))])
@pytest.mark.parametrize("statistics", [False, True])
def test_sink_logits(visible, statistics):
    for sink in ([0.0, 3.0], [-INF, 200.0], [-300.0, 1e30]):
        call = call_of(33, batch=2, visible=visible, sink_logits=torch.tensor(sink))
        assert_as_reference(exact(call, statistics=statistics), call)


@pytest.mark.parametrize("softcap", [0.5, 5.0, 1e6])
def test_softcap_comes_before_the_bias(softcap):
    mask = torch.randn(33, 50, generator=torch.Generator().manual_seed(1))[None, None] * 20
    check(call_of(33, 50, spread=3.0, softcap=softcap, visible=Visible(mask=mask)))


@pytest.mark.parametrize("scale", [0.0, -0.7, 1e-3, 2.0])
@pytest.mark.parametrize("causal", [False, True])
def test_scale(scale, causal):
    check(call_of(40, scale=scale, visible=Visible(causal=causal)))


@pytest.mark.parametrize(("dim", "dim_v"), [(7, 7), (20, 20), (120, 120), (320, 320), (16, 5), (3, 64), (1, 1)])
def test_dims(dim, dim_v):
    check(call_of(30, 40, dim=dim, dim_v=dim_v, heads=4, kv_heads=2))


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-12), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)])
@pytest.mark.parametrize("visible", [Visible(causal=True), Visible(window=7)])
def test_dtypes(dtype, rounding, visible):
    """Only the output is rounded: sums are at least float32."""
    call = call_of(70, dtype=dtype, visible=visible)
    for statistics in (False, True):
        got = exact(call, statistics=statistics)
        wide = Call(call.q.double(), call.k.double(), call.v.double(), visible)
        assert got.output.dtype == dtype
        assert got.lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert_as_reference(exact(wide, statistics=statistics), wide, 1e-12)
        torch.testing.assert_close(got.output.double(), exact(wide).output, rtol=rounding, atol=rounding / 100)
        torch.testing.assert_close(got.lse.double(), exact(wide).lse, rtol=1e-6, atol=1e-6)


LAYOUTS = {
    "blhd": lambda *given: [one.transpose(1, 2).contiguous().transpose(1, 2) for one in given],
    "dim first": lambda *given: [one.mT.contiguous().mT for one in given],
    "fused": lambda *given: torch.stack(given, 3).unbind(3),
    "every other": lambda *given: [one.repeat_interleave(2, -1)[..., ::2] for one in given],
    "one key": lambda q, k, v: [q, k[:, :, :1].expand_as(k), v],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("causal", [False, True])
def test_strides(layout, causal):
    given = LAYOUTS[layout](*heads_of(70, batch=2, heads=3, dim=64))
    check(Call(*given, Visible(causal=causal)))


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("visible", [Visible(causal=True), Visible(lengths=torch.tensor([130, 7, 0]))])
def test_a_batch_row_has_the_same_bits_alone(visible, statistics):
    together = call_of(130, batch=3, heads=4, kv_heads=2, visible=visible)
    whole = exact(together, statistics=statistics)
    for row in range(3):
        lengths = None if visible.lengths is None else visible.lengths[row : row + 1]
        tensors = (tensor[row : row + 1].clone() for tensor in (together.q, together.k, together.v))
        alone = exact(Call(*tensors, Visible(visible.causal, lengths=lengths)), statistics=statistics)
        assert torch.equal(alone.output[0], whole.output[row])
        assert torch.equal(alone.lse[0], whole.lse[row])


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_a_bad_batch_row_changes_no_bit_of_the_others(name):
    call = call_of(130, batch=3, visible=Visible(causal=True))
    for statistics in (False, True):
        want = exact(call, statistics=statistics).output[[0, 2]]
        tensors = {each: getattr(call, each).clone() for each in "qkv"}
        tensors[name][1, :, 5] = torch.nan
        got = exact(Call(**tensors, visible=call.visible), statistics=statistics).output
        assert torch.equal(got[[0, 2]], want)
        assert torch.isnan(got[1]).any()


@law
@given(st.data())
def test_any_call(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    queries, keys, batch, kv_heads = draw(0, 40), draw(0, 60), draw(1, 2), draw(1, 2)
    mask = None
    if data.draw(st.booleans()):
        shape = [data.draw(st.sampled_from([1, size])) for size in (batch, 2 * kv_heads, queries, keys)]
        mask = torch.rand(shape, generator=torch.Generator().manual_seed(draw(0, 9))) > 0.4
    visible = Visible(
        causal=data.draw(st.booleans()),
        align=data.draw(st.sampled_from(["bottom_right", "top_left"])),
        window=data.draw(st.none() | st.integers(1, 50)),
        sinks=draw(0, 5),
        lengths=data.draw(st.none() | st.lists(st.integers(0, keys), min_size=batch, max_size=batch).map(torch.tensor)),
        mask=mask,
    )
    call = call_of(queries, keys, batch=batch, heads=2 * kv_heads, kv_heads=kv_heads, dim=draw(1, 9), visible=visible)
    tile = Tile(draw(1, 30), draw(1, 30))
    assert_as_reference(exact(call, tile=tile), call)
    assert_as_reference(exact(call, statistics=False), call)
