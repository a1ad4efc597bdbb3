"""How much exact attention computes and holds, and that it writes to nothing it is given."""

import pytest
import torch
from attention.heads_of import PARTS, call_of
from torch.utils._python_dispatch import TorchDispatchMode

from logitd_kernels.attention.call import Visible
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.parts import key_tiles


@pytest.mark.parametrize(
    ("visible", "share"),
    [(Visible(), 1.0), (Visible(causal=True), 0.57), (Visible(causal=True, window=64, sinks=4), 0.09)],
)
def test_tiles_hold_what_is_seen_and_little_more(visible, share):
    row, size, found, known = call_of(4096, dim=1, heads=1, visible=visible), 256, 0, {}
    for start in range(0, 4096, size):
        queries = slice(start, start + size)
        seen = row.seen(torch.arange(start, start + size), torch.arange(4096))[0, 0]
        shown = torch.zeros_like(seen)
        for tile in key_tiles(row, queries, 512, torch.float32, known):
            found += size * (tile.keys.stop - tile.keys.start)
            shown[:, tile.keys] = True if tile.shown is None else tile.shown.weight == 1
        assert torch.equal(shown, seen)
    assert found <= share * 4096**2
    assert len(known) <= 20


class Largest(TorchDispatchMode):
    """Notes the largest storage that any operation returns."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.bytes = max(self.bytes, result.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("statistics", [False, True])
def test_memory_does_not_grow_with_the_product_of_lengths(statistics):
    call = call_of(4096, dim=8, heads=1, visible=Visible(causal=True))
    with Largest() as largest:
        exact(call, statistics=statistics)
    assert 0 < largest.bytes <= 2**19  # one tile of scores; [Lq, Lk] would be 64 MiB


def test_nothing_is_written_to():
    mask = torch.randn(2, 2, 33, 33)
    call = call_of(33, batch=2, visible=Visible(causal=True, mask=mask), sink_logits=torch.ones(2), softcap=2.0)
    held = [call.q, call.k, call.v, mask, call.sink_logits]
    before = [tensor.clone() for tensor in held]
    exact(call)
    assert all(torch.equal(*pair) for pair in zip(held, before, strict=True))
    assert all(getattr(exact(call), name) is not None for name in PARTS)
