"""An attention call: what is refused, where queries stand, what they see."""

import math

import pytest
import torch
from attention.heads_of import call_of, heads_of

from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.parts import batch_row
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import DtypeError, NonFiniteTensor, ParameterError, ShapeError

Q, K, V = heads_of(4, 6, batch=2, heads=4, kv_heads=2, dim=8, dim_v=5)


def refused(**options):
    given = {"q": Q, "k": K, "v": V, **options}
    return Call(**given)


@pytest.mark.parametrize(
    ("error", "field", "options"),
    [
        (ShapeError, "q", {"q": Q[0]}),
        (ShapeError, "k", {"k": K[None]}),
        (DtypeError, "q", {"q": Q.long()}),
        (DtypeError, "k", {"k": K.double()}),
        (DtypeError, "v", {"v": V.half()}),
        (DtypeError, "v", {"v": V.to("meta")}),
        (ShapeError, "v", {"v": V[:1]}),
        (ShapeError, "k", {"k": K[..., :3]}),
        (ShapeError, "v", {"v": V[:, :1]}),
        (ShapeError, "v", {"v": V[:, :, :3]}),
        (ShapeError, "q", {"q": Q[:, :3]}),
        (ShapeError, "q", {"k": K[:, :0], "v": V[:, :0]}),
        (ShapeError, "q", {"q": Q[:, :0]}),
        (ShapeError, "q", {"q": Q[..., :0], "k": K[..., :0]}),
        (ShapeError, "v", {"v": V[..., :0]}),
        (ParameterError, "scale", {"scale": math.nan}),
        (ParameterError, "scale", {"scale": math.inf}),
        (ParameterError, "softcap", {"softcap": 0.0}),
        (ParameterError, "softcap", {"softcap": -1.0}),
        (ParameterError, "softcap", {"softcap": math.inf}),
        (ShapeError, "sink_logits", {"sink_logits": torch.zeros(2)}),
        (ShapeError, "sink_logits", {"sink_logits": torch.zeros(4, dtype=torch.int64)}),
        (ParameterError, "sink_logits", {"sink_logits": torch.tensor([0.0, 0.0, math.nan, 0.0])}),
        (ParameterError, "sink_logits", {"sink_logits": torch.tensor([0.0, 0.0, math.inf, 0.0])}),
        (ParameterError, "align", {"visible": Visible(align="left")}),
        (ParameterError, "window", {"visible": Visible(window=0)}),
        (ParameterError, "sinks", {"visible": Visible(sinks=-1)}),
        (ShapeError, "lengths", {"visible": Visible(lengths=torch.tensor([1, 2, 3]))}),
        (ShapeError, "lengths", {"visible": Visible(lengths=torch.tensor([1.0, 2.0]))}),
        (ShapeError, "lengths", {"visible": Visible(lengths=torch.tensor([1, 7]))}),
        (ShapeError, "lengths", {"visible": Visible(lengths=torch.tensor([-1, 6]))}),
        (DtypeError, "mask", {"visible": Visible(mask=torch.zeros(1, 1, 4, 6, dtype=torch.int64))}),
        (ShapeError, "mask", {"visible": Visible(mask=torch.zeros(4, 6))}),
        (ShapeError, "mask", {"visible": Visible(mask=torch.zeros(1, 2, 4, 6))}),
        (ShapeError, "mask", {"visible": Visible(mask=torch.zeros(1, 1, 6, 4))}),
        (ParameterError, "mask", {"visible": Visible(mask=torch.full((1, 1, 4, 6), math.nan))}),
        (ParameterError, "mask", {"visible": Visible(mask=torch.full((1, 1, 4, 6), math.inf))}),
    ],
)
def test_what_is_refused(error, field, options):
    with pytest.raises(error) as raised:
        refused(**options)
    assert type(raised.value) is error
    assert raised.value.field == field


def test_what_a_call_says_of_itself():
    call = refused()
    assert (call.batch, call.heads, call.group, call.queries, call.keys) == (2, 4, 2, 4, 6)
    assert call.scaling == pytest.approx(8**-0.5)
    assert refused(scale=0.0).scaling == 0
    assert Visible(causal=True, lengths=torch.tensor([1])).structured
    assert not Visible(window=3).structured
    assert not Visible(mask=torch.ones(1, 1, 1, 1)).structured


@pytest.mark.parametrize(
    ("queries", "lengths", "align", "offsets"),
    [
        (4, None, "bottom_right", [2, 2]),
        (4, None, "top_left", [0, 0]),
        (9, None, "bottom_right", [-3, -3]),
        (4, [5, 1], "bottom_right", [1, -3]),
        (4, [5, 1], "top_left", [0, 0]),
        (6, [5, 1], "bottom_right", [0, 0]),  # queries are padded like keys
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_where_queries_stand(queries, lengths, align, offsets, dtype):
    lengths = None if lengths is None else torch.tensor(lengths, dtype=dtype)
    call = call_of(queries, 6, batch=2, visible=Visible(align=align, lengths=lengths))
    assert call.offsets().tolist() == offsets
    assert call.offsets().dtype == call.lengths().dtype == torch.int64


def seen_by_rule(call, row, query, key):
    """One pair, as `Visible` says it in words."""
    visible, length = call.visible, call.lengths()[row]
    padded = visible.lengths is not None and call.queries == call.keys
    position = query if visible.align == "top_left" or padded else query + length - call.queries
    if key >= length or (padded and query >= length) or (visible.causal and key > position):
        return False
    if visible.window is None or key < visible.sinks:
        return True
    return key > position - visible.window and (visible.causal or key < position + visible.window)


@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("queries", [3, 7, 9])
def test_what_is_seen(queries, window, causal, align):
    for lengths in (None, torch.tensor([0, 7]), torch.tensor([5, 2])):
        visible = Visible(causal, align, window, sinks=1, lengths=lengths)
        call = call_of(queries, 7, batch=2, visible=visible)
        rows, columns = torch.arange(1, queries), torch.arange(0, 7, 2)
        seen = call.seen(rows, columns)
        assert seen.shape == (2, 1, len(rows), len(columns))
        want = [[[seen_by_rule(call, row, i, j) for j in columns] for i in rows] for row in range(2)]
        assert seen[:, 0].tolist() == want


def test_the_bias_of_some_queries_and_keys():
    rows, columns = torch.tensor([3, 1]), torch.tensor([0, 5, 2])
    assert refused().bias(rows, columns) is None
    mask = torch.randn(2, 1, 4, 6)
    assert torch.equal(refused(visible=Visible(mask=mask)).bias(rows, columns), mask[:, :, rows][..., columns])
    keys = torch.tensor([True, False, True, True, True, False])[None, None, None]
    bias = refused(visible=Visible(mask=keys)).bias(rows, columns)
    assert bias.tolist() == [[[[0.0, -math.inf, 0.0]] * 2]]


@pytest.mark.parametrize("heads", [slice(1, 4), torch.tensor([3, 0])])
def test_some_heads_alone(heads):
    mask = torch.randn(2, 4, 4, 6, generator=torch.Generator().manual_seed(1))
    call = refused(visible=Visible(causal=True, mask=mask), sink_logits=torch.tensor([0.0, 1.0, 2.0, 3.0]))
    part = call.select(heads)
    assert part.group == 1
    want = reference(call)
    for name in ("output", "lse", "entropy", "max_prob"):
        torch.testing.assert_close(getattr(reference(part), name), getattr(want, name)[:, heads])


@pytest.mark.parametrize("queries", [4, 6])
def test_a_batch_row_alone_has_no_padding(queries):
    lengths = torch.tensor([6, 3, 0])
    mask = torch.randn(3, 1, queries, 6, generator=torch.Generator().manual_seed(1))
    for visible in (Visible(True, lengths=lengths), Visible(window=2, sinks=1, lengths=lengths, mask=mask)):
        call = call_of(queries, 6, batch=3, heads=4, kv_heads=2, visible=visible)
        want = reference(call).output
        for index, length in enumerate(lengths.tolist()):
            row = batch_row(call, index)
            assert row.visible.lengths is None
            assert row.keys == length
            torch.testing.assert_close(reference(row).output[0], want[index, :, : row.queries])
            assert (want[index, :, row.queries :] == 0).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_what_is_not_finite_is_named(name, bad):
    tensors = {"q": Q.clone(), "k": K.clone(), "v": V.clone()}
    tensors[name][1, 1, 2, 3] = tensors[name][1, 1, 3, 0] = bad
    with pytest.raises(NonFiniteTensor) as raised:
        refused(**tensors).check_finite()
    assert (raised.value.field, raised.value.index) == (name, [1, 1, 2, 3])
    refused().check_finite()


def test_padding_may_hold_anything():
    lengths = torch.tensor([2])
    q, k, v = heads_of(4)
    for tensor in (q, k, v):
        tensor[:, :, 2:] = math.nan
    Call(q, k, v, Visible(lengths=lengths)).check_finite()
    with pytest.raises(NonFiniteTensor):
        Call(q[:, :, :3], k, v, Visible(lengths=lengths)).check_finite()  # fewer queries than keys: none is padding
    with pytest.raises(NonFiniteTensor):
        Call(q, k, v, Visible(lengths=lengths + 1)).check_finite()
