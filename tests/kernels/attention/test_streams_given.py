"""Streams and what they are given: exports are believed nothing, and an append is done wholly or not at all."""

from dataclasses import replace

import pytest
import torch
from attention.heads_of import heads_of

from logitd_kernels.attention import Options
from logitd_kernels.attention.streams import STREAMS, StreamSetting, early, needed_bytes, open_stream, restore_stream
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError

REFUSALS = (ShapeError, ParameterError, NonFiniteTensor)
SPLIT = ("exact", "moment", "hybrid", "elu")


def sequence(tokens, heads=4, dim=8):
    return tuple(x[0] for x in heads_of(tokens, heads=heads, kv_heads=heads, dim=dim, spread=0.5))


def setting_of(method, heads=4, dim=8, **more):
    modes = SPLIT if method == "split" else None
    return StreamSetting("exact" if modes else method, heads, heads, dim, dim, modes=modes, **more)


def filled(method, tokens=400, **more):
    stream = open_stream(setting_of(method, **more))
    q, k, v = sequence(tokens)
    stream.attend(q, k, v)
    return stream


def wrong_values(value):
    """Return forms of a part of an export that are not its own."""
    if not isinstance(value, torch.Tensor):
        return [None, "x", -1, 1 << 60, True, 0.5, [value], torch.ones(2)]
    wrong = [None, 3, value[None], value.to(torch.float16)]
    if not value.ndim:
        return [*wrong, -value]
    wrong += [value[:-1], torch.cat([value, value]), value[..., :-1]]
    if value.numel() and value.dtype == torch.float32:
        wrong += [value.clone().contiguous().index_fill_(-1, torch.tensor([0]), bad) for bad in (torch.nan, torch.inf)]
    return wrong


@pytest.mark.parametrize("tokens", [100, 400])
@pytest.mark.parametrize("method", [*STREAMS, "split"])
def test_no_part_of_an_export_is_believed(method, tokens):
    stream = filled(method, tokens)
    flat = stream.export()
    assert restore_stream(stream.setting, flat).tokens == tokens
    assert needed_bytes(stream.setting, flat) == restore_stream(stream.setting, flat).bytes
    for name, value in flat.items():
        if not name.endswith(("early_error", "early")):
            with pytest.raises(REFUSALS):
                restore_stream(stream.setting, {key: part for key, part in flat.items() if key != name})
        for wrong in wrong_values(value):
            with pytest.raises(REFUSALS):
                restore_stream(stream.setting, {**flat, name: wrong})
    with pytest.raises(ParameterError, match="no part"):
        restore_stream(stream.setting, {**flat, f"{SPLIT[0]}.extra" if method == "split" else "extra": 3})


def test_counts_of_tokens_fit_one_another():
    for method, name, wrong in (
        ("hybrid", "tokens", 401),
        ("hybrid", "start", 64),
        ("hybrid", "state.tokens", torch.tensor(125)),
        ("moment", "state.tokens", torch.tensor(255)),
        ("elu", "tokens", 0),
    ):
        stream = filled(method)
        with pytest.raises(REFUSALS):
            restore_stream(stream.setting, {**stream.export(), name: wrong})
    for method in ("hybrid", "moment"):
        flat = filled(method, 100).export()
        with pytest.raises(ShapeError, match="at most 100"):
            restore_stream(setting_of(method), {**flat, "early": flat["early"][:, :1].expand(-1, 101, -1)})


def test_a_count_of_features_is_not_what_an_export_says():
    """A projection of 2^40 rows was drawn before anything was looked at."""
    stream = filled("trig")
    with pytest.raises(ParameterError) as caught:
        restore_stream(stream.setting, {**stream.export(), "feature_dim": 1 << 40})
    assert caught.value.field == "feature_dim"


def test_parts_of_a_split_have_seen_the_same_tokens():
    one, other = filled("split", 400), filled("split", 401)
    flat = {**one.export(), **{name: part for name, part in other.export().items() if name.startswith("exact.")}}
    with pytest.raises(ParameterError, match="of the others"):
        restore_stream(one.setting, flat)


@pytest.mark.parametrize("method", [*STREAMS, "split"])
def test_the_bytes_are_known_before(method):
    """Of new streams to the byte; and the state of second order fits what was set aside."""
    stream = filled(method, 1)
    assert needed_bytes(stream.setting) == open_stream(stream.setting).bytes
    full = filled(method, 400, options=Options(rank=8))
    kept = sum(part.nbytes for part in full.export().values() if isinstance(part, torch.Tensor))
    assert kept <= full.bytes + 200  # early errors and counts aside
    huge = replace(setting_of(method), dim=1024, value_dim=1024)
    assert needed_bytes(huge) >= needed_bytes(stream.setting)


@pytest.mark.parametrize("method", ["hybrid", "moment", "split"])
@pytest.mark.parametrize("why", ["spread", "cholesky", "later"])
def test_an_append_that_fails_changes_nothing(method, why, monkeypatch):
    """Coordinates are fitted in the middle of an append: when that fails, what came before must go back as well."""
    q, k, v = sequence(900)
    stream, twin = filled(method, 100), filled(method, 100)
    with monkeypatch.context() as patch:
        if why == "cholesky":
            patch.setattr(early, "fit_basis", lambda *_: torch.linalg.cholesky(-torch.eye(2)))
        if why == "later":  # after the state has moved on
            patch.setattr(early.MomentState, "read", lambda *_: 1 / 0)
        size = 1e25 if why == "spread" else 1.0
        with pytest.raises(ZeroDivisionError if why == "later" else ParameterError):
            stream.attend(q * size, k * size, v)
    assert stream.tokens == 100
    for piece in (slice(100, 420), slice(420, 900)):
        here, there = (one.attend(q[:, piece], k[:, piece], v[:, piece]) for one in (stream, twin))
        assert torch.equal(here, there)
    assert torch.equal(stream.early_error.nan_to_num(), twin.early_error.nan_to_num())


@pytest.mark.parametrize("method", [*STREAMS, "split"])
def test_logits_beyond_float32_are_refused(method):
    q, k, v = sequence(300)
    stream = open_stream(setting_of(method, scale=1e38))
    for queries, keys, field in ((q * 1e3, k / 1e3, "q"), (q / 1e3, k * 1e3, "k"), (None, k * 1e3, "k")):
        with pytest.raises(NonFiniteTensor) as caught:
            stream.attend(queries, keys, v)
        assert caught.value.field == field
    assert stream.tokens == 0


@pytest.mark.parametrize("tokens", [100, 400])
@pytest.mark.parametrize("method", [*STREAMS, "split"])
def test_a_restored_stream_keeps_nothing_of_what_it_was_given(method, tokens):
    """What it was given may be a view of a whole request."""
    stream, (q, _, _) = filled(method, tokens), sequence(5)
    flat = stream.export()
    other = restore_stream(stream.setting, flat)
    for part in flat.values():
        if isinstance(part, torch.Tensor):
            part.zero_()
    assert torch.equal(other.read(q), stream.read(q))
    kept, twin = other.export(), stream.export()
    assert all(torch.equal(kept[name], part) for name, part in twin.items() if isinstance(part, torch.Tensor))
