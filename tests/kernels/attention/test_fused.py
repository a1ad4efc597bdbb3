"""Torch's fused operator and bfloat16: where they serve, what they give, and when they say no."""

import pytest
import torch
from attention.heads_of import assert_as_reference, call_of

from logitd_kernels.attention import bf16
from logitd_kernels.attention.bf16 import bf16_why_not, exact_bf16
from logitd_kernels.attention.call import Visible
from logitd_kernels.attention.fused import fused, why_not_fused
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import BackendUnavailable

SERVED = {
    "all": (40, 65, Visible()),
    "causal": (300, 300, Visible(causal=True)),
    "top left": (65, 40, Visible(causal=True, align="top_left")),
    "top left, more keys": (40, 65, Visible(causal=True, align="top_left")),
    "lengths": (65, 65, Visible(lengths=torch.tensor([0, 65]))),
    "padded queries": (65, 65, Visible(causal=True, lengths=torch.tensor([33, 1]))),
    "decoding": (1, 65, Visible(causal=True, lengths=torch.tensor([65, 9]))),
}


@pytest.mark.parametrize("kind", SERVED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_what_it_serves(kind, dtype):
    queries, keys, visible = SERVED[kind]
    call = call_of(queries, keys, batch=2, heads=4, kv_heads=2, dim=24, dtype=dtype, visible=visible)
    assert why_not_fused(call) is None
    got = fused(call)
    assert got.output.dtype == got.lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_as_reference(got, call, 1e-5)


@pytest.mark.parametrize(
    ("queries", "keys", "visible"),
    [
        (2, 65, Visible(causal=True)),
        (65, 2, Visible(causal=True)),
        (1, 65, Visible(causal=True, align="top_left", window=3)),
        (4, 65, Visible(causal=True, lengths=torch.tensor([65, 4]))),
    ],
)
def test_what_it_does_not_serve(queries, keys, visible):
    call = call_of(queries, keys, batch=2, visible=visible)
    assert fused(call) is None
    assert why_not_fused(call)


needs_bf16 = pytest.mark.skipif(bf16_why_not() is not None, reason=str(bf16_why_not()))


@needs_bf16
@pytest.mark.parametrize("kind", SERVED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_has_the_error_of_its_rounding(kind, dtype):
    queries, keys, visible = SERVED[kind]
    sinks = torch.tensor([-1.0, 0.0, 2.0, 5.0])
    call = call_of(queries, keys, batch=2, heads=4, kv_heads=2, dim=32, dtype=dtype, visible=visible, sink_logits=sinks)
    got, want = exact_bf16(call), reference(call)
    assert got.output.dtype == dtype
    error = (got.output.double() - want.output).norm() / want.output.norm()
    assert 1e-4 < error < 8e-3
    blind = want.lse == -torch.inf
    assert (got.lse[blind] == -torch.inf).all()
    assert (got.output[blind] == 0).all()
    torch.testing.assert_close(got.lse[~blind].double(), want.lse[~blind], rtol=0.01, atol=0.02)


@needs_bf16
def test_bfloat16_says_why_a_call_does_not_fit():
    call = call_of(9, visible=Visible(window=2))
    assert "window" in bf16_why_not(call)
    with pytest.raises(BackendUnavailable, match="window"):
        exact_bf16(call)
    largest = call_of(9)
    largest.v[0, 0, 0, 0] = torch.finfo(torch.float32).max  # infinite when rounded
    assert "finite" in bf16_why_not(largest)


@pytest.mark.parametrize(
    ("text", "runs"),
    [("flags : fpu amx_bf16 sse\n", True), ("Features : fp asimd bf16\n", True), ("flags : sse avx512f\n", False)],
)
def test_the_cpu_decides(text, runs, monkeypatch, tmp_path):
    monkeypatch.setattr(bf16, "_CPUINFO", tmp_path / "cpuinfo")
    bf16._why_not_here.cache_clear()
    try:
        (tmp_path / "cpuinfo").write_text(text)
        assert (bf16_why_not() is None) == runs
        bf16._why_not_here.cache_clear()
        monkeypatch.setattr(bf16, "_CPUINFO", tmp_path / "missing")
        assert "missing" in bf16_why_not()
        with pytest.raises(BackendUnavailable, match="exact_bf16"):
            exact_bf16(call_of(3))
    finally:
        bf16._why_not_here.cache_clear()
