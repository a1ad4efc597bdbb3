"""The recurrent state: any split of a stream, export and import, and the digits it keeps."""

import pytest
import torch
from attention.features_of import CAUSAL, PLAIN, SMALL, assert_near, definition, setting_of
from attention.heads_of import call_of
from hypothesis import given, settings
from hypothesis import strategies as st

from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.features.export import exported, restored
from logitd_kernels.attention.features.feature import Setting
from logitd_kernels.attention.features.registry import METHODS
from logitd_kernels.attention.features.state import FeatureState
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError


def state_of(call, method, options=PLAIN):
    return FeatureState(method, setting_of(call, options), call.heads, call.v.shape[3])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=8), st.sampled_from(list(METHODS)))
def test_any_split_of_a_stream(cuts, method):
    call = call_of(150, **SMALL, visible=CAUSAL)
    want = definition(call, method)
    state, parts = state_of(call, method), []
    sizes = [*cuts, 150]
    start = 0
    for size in sizes:
        piece = slice(start, min(start + size, 150))
        parts.append(state.attend(call.q[0, :, piece], call.k[0, :, piece], call.v[0, :, piece], chunk=32)[0])
        start = piece.stop
    assert state.tokens == 150
    assert_near(torch.cat(parts, 1)[None], want)


@pytest.mark.parametrize("method", METHODS)
def test_one_token_at_a_time(method):
    call = call_of(130, **SMALL, visible=CAUSAL)
    state, parts = state_of(call, method), []
    for token in range(130):
        state.append(call.k[0, :, token : token + 1], call.v[0, :, token : token + 1])
        parts.append(state.read(call.q[0, :, token : token + 1])[0])
    assert_near(torch.cat(parts, 1)[None], definition(call, method))
    assert state.bytes == state.sums.nbytes + state.pivot.nbytes


def test_an_empty_state_answers_0():
    state = state_of(call_of(5, dim=4), "favor_plus")
    output, refused = state.read(torch.ones(2, 3, 4))
    assert (output == 0).all()
    assert refused.tolist() == [0, 0]
    state.append(torch.ones(2, 0, 4), torch.ones(2, 0, 4))
    assert state.tokens == 0


def test_a_float32_state_keeps_its_digits():
    """16,384 tokens one by one, φ = 1 + U(0, 1): what bfloat16 sums lose, ours keep."""
    keys = torch.rand(1, 16_384, 4, generator=torch.Generator().manual_seed(0))
    state = FeatureState("elu", Setting(4, 1.0), 1, 4)
    short = torch.zeros(4, dtype=torch.bfloat16)
    for token in range(keys.shape[1]):
        state.append(keys[:, token : token + 1], keys[:, token : token + 1])
        short += keys[0, token].bfloat16()
    true = (1 + keys.double()).sum(1)
    assert float((state.sums[..., -1] / true - 1).abs().max()) < 1e-5
    assert float((short.double() / keys.double().sum(1)).max()) < 0.04
    whole = FeatureState("elu", Setting(4, 1.0), 1, 4)
    whole.append(keys, keys)
    query = keys[:, :1]
    mean = definition(Call(query[None], keys[None], keys[None], scale=1.0), "elu")
    for one in (state, whole):
        assert_near(one.read(query)[0][None], mean, 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_export_and_restore_continue_on_the_same_bits(method):
    call = call_of(90, **SMALL, visible=CAUSAL)
    state = state_of(call, method, Options(feature_dim=20, seed=7, orthogonal=False))
    state.attend(call.q[0, :, :50], call.k[0, :, :50], call.v[0, :, :50])
    flat = exported(state)
    assert all(isinstance(part, (int, float, str)) or part.dtype == torch.float32 for part in flat.values())
    copy = restored(flat)
    assert copy.tokens == 50
    for one in (state, copy):
        one.last = one.attend(call.q[0, :, 50:], call.k[0, :, 50:], call.v[0, :, 50:])[0]
    assert torch.equal(state.last, copy.last)
    assert flat["tokens"] == 50  # what was exported is its own
    assert torch.equal(restored(flat).sums, flat["sums"])


def test_an_empty_state_is_restored():
    state = restored(exported(FeatureState("favor_plus", Setting(4, 0.5), 2, 3)))
    assert state.tokens == 0
    assert (state.pivot == -torch.inf).all()


def test_a_wrong_state_is_refused():
    call = call_of(9, dim=4)
    state = state_of(call, "derf")
    state.append(call.k[0], call.v[0])
    flat = exported(state)
    for name in flat:
        with pytest.raises(ParameterError, match=f"{name}: missing"):
            restored({key: value for key, value in flat.items() if key != name})
    for name, wrong in [("tokens", -1), ("tokens", 1.5), ("horizon", 0), ("scale", torch.inf)]:
        with pytest.raises(ParameterError, match=name):
            restored({**flat, name: wrong})
    for name in ("sums", "pivot", "q_mean", "k_second"):
        with pytest.raises(ShapeError, match=name):
            restored({**flat, name: flat[name][:, :-1]})
        bad = flat[name].clone()
        bad.view(-1)[3] = torch.nan
        with pytest.raises(NonFiniteTensor, match=name):
            restored({**flat, name: bad})


def test_a_state_checks_what_comes():
    state = FeatureState("elu", Setting(4, 1.0), 2, 3)
    for k, v in [((1, 5, 4), (1, 5, 3)), ((2, 5, 3), (2, 5, 3)), ((2, 5, 4), (2, 4, 3)), ((2, 4), (2, 3))]:
        with pytest.raises(ShapeError):
            state.append(torch.ones(k), torch.ones(v))
    with pytest.raises(ShapeError, match="q"):
        state.read(torch.ones(2, 1, 3))
