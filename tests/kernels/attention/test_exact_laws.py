"""What exact attention must do by reason alone, the reference with it: no other implementation is asked."""

import math

import pytest
import torch
from attention.heads_of import call_of, heads_of

from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.exact import Tile, exact
from logitd_kernels.attention.reference import reference

INF = torch.inf
METHODS = {
    "reference": reference,
    "exact": exact,
    "small tiles": lambda call: exact(call, tile=Tile(8, 8)),
    "fused": lambda call: exact(call, statistics=False),
}


@pytest.fixture(params=METHODS)
def attend(request):
    return METHODS[request.param]


def close(got, want, tolerance=1e-6):
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


def test_a_hand_computed_call(attend):
    """Scores 0, ln 2 and ln 5: weights 1/8, 2/8 and 5/8."""
    k = torch.tensor([1.0, 2.0, 5.0]).log().view(1, 1, 3, 1)
    v = torch.tensor([[8.0, 0.0], [0.0, 8.0], [8.0, 8.0]])[None, None]
    got = attend(Call(torch.ones(1, 1, 1, 1), k, v))
    close(got.output, torch.tensor([[[[6.0, 7.0]]]]))
    close(got.lse, torch.tensor([[[math.log(8)]]]))
    if got.entropy is not None:
        close(got.entropy, -sum(w * torch.tensor([[[w]]]).log() for w in (1 / 8, 2 / 8, 5 / 8)))
        close(got.max_prob, torch.tensor([[[5 / 8]]]))


def test_sink_weights_by_hand(attend):
    """The same scores and a sink of ln 8: keys share half of the weight, LSE does not know of it."""
    k = torch.tensor([1.0, 2.0, 5.0]).log().view(1, 1, 3, 1)
    v = torch.tensor([[8.0], [0.0], [8.0]])[None, None]
    got = attend(Call(torch.ones(1, 1, 1, 1), k, v, sink_logits=torch.tensor([math.log(8)])))
    close(got.output, torch.tensor([[[[3.0]]]]))
    close(got.lse, torch.tensor([[[math.log(8)]]]))
    if got.entropy is not None:
        close(got.entropy, -sum(w * torch.tensor([[[w]]]).log() for w in (1 / 16, 2 / 16, 5 / 16)))
        close(got.max_prob, torch.tensor([[[5 / 16]]]))


def test_scale_zero_gives_the_mean(attend):
    call = call_of(5, 40, scale=0.0)
    got = attend(call)
    close(got.output, call.v.mean(2, keepdim=True).expand(-1, -1, 5, -1))
    close(got.lse, torch.full((1, 2, 5), math.log(40)))


@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_constant_keys_give_the_mean_of_what_is_seen(attend, spread):
    q, k, v = heads_of(50, spread=spread)
    got = attend(Call(q, k[:, :, :1].expand_as(k), v, Visible(causal=True)))
    close(got.output, v.cumsum(2) / torch.arange(1, 51)[:, None])
    if got.entropy is not None:
        close(got.entropy, torch.arange(1, 51).log().expand(1, 2, 50), 2e-6)


@pytest.mark.parametrize("logit", [90.0, 1e4, 1e30])
def test_one_huge_logit_gives_its_value(attend, logit):
    q, k, v = torch.ones(1, 1, 3, 2), torch.zeros(1, 1, 40, 2), heads_of(40, heads=1)[2]
    k[0, 0, 23, 0] = logit
    got = attend(Call(q, k, v, scale=1.0))
    assert torch.equal(got.output.float(), v[:, :, 23:24].expand(-1, -1, 3, -1))
    close(got.lse, torch.full((1, 1, 3), logit))
    if got.entropy is not None:
        assert (got.entropy < 1e-30).all() or logit == 90.0
        assert (got.max_prob == 1).all()


def test_window_of_one_key_is_the_query_itself(attend):
    for causal in (False, True):
        call = call_of(40, visible=Visible(causal=causal, window=1))
        close(attend(call).output, call.v)


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_that_covers_all_is_none(attend, causal):
    given = heads_of(70)
    got = attend(Call(*given, Visible(causal=causal, window=70)))
    close(got.output, attend(Call(*given, Visible(causal=causal))).output)


def test_alignment_by_hand(attend):
    """With equal scores and v = 0, 1, 2, ... a query gives half the index of the last key it sees."""
    v = torch.arange(5.0).view(1, 1, 5, 1)

    def means(queries, keys, align):
        q, k = torch.zeros(1, 1, queries, 1), torch.zeros(1, 1, keys, 1)
        return attend(Call(q, k, v[:, :, :keys], Visible(causal=True, align=align))).output.flatten().tolist()

    assert means(2, 5, "bottom_right") == [1.5, 2.0]
    assert means(2, 5, "top_left") == [0.0, 0.5]
    assert means(5, 2, "bottom_right") == [0.0, 0.0, 0.0, 0.0, 0.5]  # the first three see nothing
    assert means(5, 2, "top_left") == [0.0, 0.5, 0.5, 0.5, 0.5]


def test_entropy_and_lse_are_those_of_the_weights(attend):
    call = call_of(65, 129, spread=1.5)
    got = attend(call)
    scores = call.q.double() @ call.k.double().mT / 4
    close(got.lse, torch.logsumexp(scores, -1))
    if got.entropy is not None:
        p = torch.softmax(scores, -1)
        close(got.entropy, -(p * p.log()).sum(-1), 2e-6)
        close(got.max_prob, p.amax(-1))


def test_tiles_change_nothing_but_rounding():
    for visible in (Visible(), Visible(causal=True), Visible(window=20, sinks=3)):
        call = call_of(40, dtype=torch.float64, visible=visible)
        want = exact(call)
        for tile in (Tile(1, 1), Tile(7, 30), Tile(30, 7), Tile(1000, 1000)):
            got = exact(call, tile=tile)
            close(got.output, want.output, 1e-13)
            close(got.entropy, want.entropy, 1e-12)


def test_the_past_does_not_know_the_future(attend):
    q, k, v = heads_of(60)
    want = attend(Call(q, k, v, Visible(causal=True))).output[:, :, :40]
    k[:, :, 40:], v[:, :, 40:] = 1e20, torch.nan
    close(attend(Call(q, k, v, Visible(causal=True))).output[:, :, :40], want)


def test_permuted_keys_are_the_same_keys(attend):
    q, k, v = heads_of(30, 90)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(3))
    close(attend(Call(q, k, v)).output, attend(Call(q, k[:, :, order], v[:, :, order])).output, 2e-6)


def test_parts_merge_by_their_lse(attend):
    q, k, v = heads_of(30, 90)
    whole, first, last = (
        attend(Call(q, k[:, :, part], v[:, :, part])) for part in (slice(None), slice(35), slice(35, 90))
    )
    weights = torch.softmax(torch.stack([first.lse, last.lse]), 0)[..., None]
    close(weights[0] * first.output + weights[1] * last.output, whole.output)
    close(torch.logaddexp(first.lse, last.lse), whole.lse)
