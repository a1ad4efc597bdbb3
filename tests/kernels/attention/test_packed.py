"""Sequences laid end to end: each is attended as if it were alone."""

import pytest
import torch
from attention.heads_of import PARTS, heads_of

from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.packed import packed
from logitd_kernels.errors import DtypeError, ParameterError, ShapeError


def laid(total_q, total_k, **options):
    """Return q [T, H, d], k and v [S, Hkv, d]."""
    q, k, v = heads_of(total_q, total_k, **options)
    return q[0].transpose(0, 1), k[0].transpose(0, 1), v[0].transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("visible", [None, Visible(causal=True), Visible(causal=True, window=9, sinks=1)])
@pytest.mark.parametrize(
    ("starts_q", "starts_k"),
    [
        ([0, 78, 204], [0, 78, 204]),
        ([0, 0, 5, 5, 64], [0, 3, 3, 9, 70]),  # no queries, no keys, neither
        ([0, 20], [0, 30]),
        ([0, 0], [0, 0]),
        ([0], [0]),
    ],
)
def test_equals_each_sequence_alone(starts_q, starts_k, visible, statistics, dtype):
    q, k, v = laid(starts_q[-1], starts_k[-1], heads=4, kv_heads=2, dim=8, dim_v=5)
    sinks = torch.tensor([0.0, 1.0, -1.0, 2.0])
    options = {"scale": 0.4, "softcap": 3.0, "sink_logits": sinks}
    bounds = (torch.tensor(starts, dtype=dtype) for starts in (starts_q, starts_k))
    got = packed(q, k, v, *bounds, visible=visible, statistics=statistics, **options)
    assert got.output.shape == (len(q), 4, 5)
    assert got.lse.shape == (len(q), 4)
    assert (got.entropy is not None) == statistics
    for at in range(len(starts_q) - 1):
        queries, keys = slice(starts_q[at], starts_q[at + 1]), slice(starts_k[at], starts_k[at + 1])
        given = (one.transpose(0, 1)[None] for one in (q[queries], k[keys], v[keys]))
        alone = exact(Call(*given, visible or Visible(), **options), statistics=statistics)
        for name in PARTS:
            if (want := getattr(alone, name)) is not None:
                assert torch.equal(getattr(got, name)[queries], want[0].transpose(0, 1)), name


@pytest.mark.parametrize(
    ("error", "field", "change"),
    [
        (ShapeError, "q", {"q": torch.zeros(1, 2, 10, 4)}),
        (ShapeError, "k", {"k": torch.zeros(10, 2, 3)}),
        (DtypeError, "v", {"v": torch.zeros(10, 2, 4).double()}),
        (ShapeError, "cu_seqlens_q", {"cu_seqlens_q": torch.tensor([[0, 10]])}),
        (ShapeError, "cu_seqlens_q", {"cu_seqlens_q": torch.tensor([], dtype=torch.int64)}),
        (ShapeError, "cu_seqlens_k", {"cu_seqlens_k": torch.tensor([0.0, 4.0, 10.0])}),
        (ShapeError, "cu_seqlens_k", {"cu_seqlens_k": torch.tensor([0, 10])}),
        (ParameterError, "cu_seqlens_q", {"cu_seqlens_q": torch.tensor([1, 4, 10])}),
        (ParameterError, "cu_seqlens_q", {"cu_seqlens_q": torch.tensor([0, 4, 9])}),
        (ParameterError, "cu_seqlens_k", {"cu_seqlens_k": torch.tensor([0, 11, 10])}),
        (ParameterError, "lengths", {"visible": Visible(lengths=torch.tensor([10]))}),
        (ParameterError, "mask", {"visible": Visible(mask=torch.zeros(1, 1, 10, 10))}),
        (ParameterError, "softcap", {"softcap": 0.0}),
    ],
)
def test_what_is_refused(error, field, change):
    options = {name: torch.zeros(10, 2, 4) for name in "qkv"}
    options |= {name: torch.tensor([0, 4, 10]) for name in ("cu_seqlens_q", "cu_seqlens_k")}
    with pytest.raises(error) as raised:
        packed(**options | change)
    assert type(raised.value) is error
    assert raised.value.field == field
