"""`attend`: what is chosen, what is recomputed, what is told; on made-up heads and on real ones."""

import math

import pytest
import torch
from attention import minilm
from attention.heads_of import call_of, heads_of

from logitd_kernels.attention import MODES, Call, Options, Visible, Wish, attend, contenders, recommend, trials
from logitd_kernels.attention.bf16 import bf16_why_not
from logitd_kernels.attention.plan import plan_layer, saving
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import NonFiniteTensor, ParameterError

real = pytest.mark.skipif(minilm.ABSENT, reason=minilm.REASON)


def errors(output, call):
    """The true relative error of each head, [B, H]."""
    want = reference(call).output
    return torch.linalg.norm(output.double() - want, dim=(2, 3)) / torch.linalg.norm(want, dim=(2, 3))


def modes(answer):
    return [[head.mode for head in row] for row in answer.heads]


@pytest.mark.parametrize(
    ("call", "threshold", "why"),
    [
        (call_of(100), 100, "short"),
        (call_of(101, heads=1, spread=0.3), 100, "long"),
        (call_of(101, visible=Visible(window=5)), 100, "unrepresentable"),
        (call_of(101, visible=Visible(mask=torch.ones(1, 1, 101, 101, dtype=torch.bool))), 100, "unrepresentable"),
        (call_of(101, softcap=3.0), 100, "unrepresentable"),
        (call_of(5, 101), 100, "few_queries"),
        (call_of(101, spread=6.0), 100, "infeasible"),
    ],
)
def test_auto_chooses(call, threshold, why):
    answer = attend(call, Wish(threshold=threshold))
    assert {choice.why for choice in answer.choices} == {why}
    assert {choice.mode for choice in answer.choices} == {"hybrid" if why == "long" else "exact"}
    assert all(choice.reason for choice in answer.choices)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("auto", "linear", "exact_bf16")])
def test_a_mode_that_is_asked_for_is_used(mode):
    call = call_of(150, heads=2, dim=8, spread=0.5)
    answer = attend(call, Wish(mode=mode, policy="best_effort"))
    assert modes(answer) == [[mode] * 2]
    for head, true in zip(answer.heads[0], errors(answer.output, call)[0].tolist(), strict=True):
        assert (head.why, head.approximate_error) == ("requested", None)
        assert mode == "trig" or head.relative_error == pytest.approx(true, rel=0.5, abs=1e-5)
        assert head.error_low <= head.relative_error <= head.error_high or head.relative_error < 1e-5
        assert (head.state_bytes is None) == (mode == "exact")
        assert head.kv_bytes == 150 * 16 * 4


@pytest.mark.skipif(bf16_why_not() is not None, reason=str(bf16_why_not()))
def test_bfloat16_is_measured_too():
    call = call_of(300, heads=2)
    answer = attend(call, Wish(mode="exact_bf16"))
    assert modes(answer) == [["exact_bf16"] * 2]
    assert 1e-4 < answer.heads[0][0].relative_error < 0.01
    assert modes(attend(call, Wish(mode="exact_bf16", tolerance=1e-4))) == [["exact"] * 2]


def test_strict_recomputes_what_may_err_and_best_effort_says_so():
    call = call_of(400, heads=3, batch=2, dim=8, spread=0.8)
    strict, lax = (
        attend(call, Wish(mode="mean_v", tolerance=0.3, policy=policy)) for policy in ("strict", "best_effort")
    )
    assert modes(strict) == [["exact"] * 3] * 2
    assert errors(strict.output, call).max() < 1e-5
    for head, other in zip(strict.heads[1], lax.heads[1], strict=True):
        assert (head.why, head.over_tolerance) == ("given_up", False)
        assert head.approximate_error == other.relative_error > 0.3 > head.relative_error
        assert (other.mode, other.over_tolerance) == ("mean_v", True)
    assert strict.seconds["recompute"] > 0 == lax.seconds["recompute"]


def test_heads_have_modes_of_their_own():
    call = call_of(200, heads=4, kv_heads=2, dim=8, spread=0.5)
    own = ("moment", "exact", "mean_v", "moment")
    answer = attend(call, Wish(heads=own, policy="best_effort"))
    assert modes(answer) == [list(own)]
    for place, mode in enumerate(own):
        alone = attend(call.select(torch.tensor([place])), Wish(mode=mode, policy="best_effort"))
        torch.testing.assert_close(answer.output[:, place], alone.output[:, 0], rtol=0, atol=1e-6)
        assert answer.heads[0][place].state_bytes == alone.heads[0][0].state_bytes
    assert 0 < answer.cost < 1


def test_constant_keys_give_the_mean_and_one_huge_logit_gives_its_value():
    q, k, v = heads_of(300, heads=1, dim=8)
    constant = Call(q, k[:, :, :1].expand_as(k), v)
    huge, centre = k.clone(), q.mean(2)
    huge[:, :, 77] = 500 * centre / centre.square().sum()  # a logit of 500/√8, beside others of about 0
    for mode in ("moment", "hybrid", "auto"):
        answer = attend(constant, Wish(mode=mode, threshold=100, policy="best_effort"))
        torch.testing.assert_close(answer.output, v.mean(2, keepdim=True).expand_as(v), rtol=0, atol=2e-6)
        sharp = Call(q.mean(2, keepdim=True).expand_as(q), huge, v)
        found = attend(sharp, Wish(mode=mode, threshold=100))
        torch.testing.assert_close(found.output, v[:, :, 77:78].expand_as(v), rtol=0, atol=1e-4)


@pytest.mark.parametrize("place", [3, 1234, 2999])
def test_a_needle_is_answered_or_told(place):
    """One key that matters for one query alone, which no audited row may be."""
    q, k, v = heads_of(3000, heads=1, dim=32, spread=0.5)
    k[:, :, place] = 12 * q[:, :, 1500] / torch.linalg.norm(q[:, :, 1500], dim=-1, keepdim=True)
    q[:, :, 1500] *= 4
    v[:, :, place] += 10
    call = Call(q, k, v)
    answer = attend(call, Wish(threshold=1000))
    want = reference(call).output[0, 0, 1500]
    error = torch.linalg.norm(answer.output[0, 0, 1500].double() - want) / torch.linalg.norm(want)
    assert error < 0.1 or answer.heads[0][0].max_row_error > 0.1


@real
@pytest.mark.parametrize(("length", "layers"), [(512, range(6)), (2048, (0, 2, 5))])
def test_strict_keeps_its_promise_on_real_heads(length, layers):
    for layer in layers:
        call = Call(*minilm.layers(length)[layer])
        answer = attend(call, Wish(mode="linear", method="hybrid", tolerance=0.1))
        true = errors(answer.output, call)
        assert true.max() < 0.12
        for head, own in zip(answer.heads[0], true[0].tolist(), strict=True):
            assert own < 1e-5 if head.mode == "exact" else head.relative_error <= 0.1


@real
def test_a_plan_of_real_layers():
    calls = {layer: Call(*minilm.layers(2048)[layer]) for layer in (2, 5)}
    plans = {layer: plan_layer(call, 0.1, Options()) for layer, call in calls.items()}
    easy = [sum(mode != "exact" for mode in plans[layer].modes) for layer in (2, 5)]
    assert easy[1] > easy[0]
    cost, memory = saving(plans)
    assert 0 < cost < 1
    assert 0 < memory < 1
    answer = attend(calls[5], Wish(heads=plans[5].modes, policy="best_effort"))
    assert errors(answer.output, calls[5]).max() < 0.12


def test_recommendations_are_the_cheapest_that_will_do():
    call = call_of(600, heads=2, dim=16, spread=0.4)
    tried = list(trials(call, contenders(call, ["moment", "mean_v", "taylor2"], None), Options()))
    assert [trial.method for trial in tried] == ["exact", "moment", "mean_v", "taylor2"]
    assert recommend(tried, [0], 0, 10.0).mode == "mean_v"
    assert recommend(tried, [0], 0, 0.05).mode == "moment"
    assert recommend(tried, [0], 0, 0.0).mode == "exact"
    assert recommend(tried[:1], [0], 0, 10.0).reason == "nothing else was tried"


def test_empty_calls():
    for call in (call_of(0), call_of(3, 0), call_of(0, 5), call_of(3, batch=0)):
        for mode in ("auto", "exact", "moment", "hybrid", "mean_v", "elu"):
            answer = attend(call, Wish(mode=mode))
            assert answer.output.shape == (*call.q.shape[:3], call.v.shape[3])
            assert not answer.output.any()
            assert len(answer.heads) == call.batch


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (Wish(mode="magic"), "mode"),
        (Wish(method="magic"), "method"),
        (Wish(policy="lax"), "policy"),
        (Wish(tolerance=math.nan), "tolerance"),
        (Wish(tolerance=-1.0), "tolerance"),
        (Wish(threshold=-1), "threshold"),
        (Wish(rows=1), "audit_rows"),
        (Wish(heads=("exact",)), "heads"),
        (Wish(heads=("exact", "magic")), "mode"),
        (Wish(mode="moment", options=Options(rank=0)), "rank"),
    ],
)
def test_impossible_wishes_are_named(wish, field):
    with pytest.raises(ParameterError) as caught:
        attend(call_of(5), wish)
    assert caught.value.field == field


def test_what_is_not_finite_is_named():
    q, k, v = heads_of(5)
    k[0, 1, 2, 3] = -math.inf
    with pytest.raises(NonFiniteTensor, match=r"k: -inf at \[0, 1, 2, 3\]"):
        attend(Call(q, k, v))


def test_scores_that_pass_float32_hide_no_error():
    q, _, v = heads_of(20, heads=1, dim=8)
    call = Call(q * 1e20, q * 1e20, v)
    lax, strict = (attend(call, Wish(mode="mean_v", policy=policy)) for policy in ("best_effort", "strict"))
    assert lax.heads[0][0].relative_error == pytest.approx(float(errors(lax.output, call)), rel=1e-4)
    assert lax.heads[0][0].over_tolerance
    assert modes(strict) == [["exact"]]
    assert errors(strict.output, call) < 1e-5


def test_an_exact_head_that_overflows_is_over_tolerance():
    q, k, v = heads_of(20, heads=1, dtype=torch.float64)
    for mode in ("exact", "mean_v"):
        head = attend(Call(q * 1e200, k * 1e200, v), Wish(mode=mode)).heads[0][0]
        assert (head.mode, head.over_tolerance, head.relative_error) == ("exact", True, math.inf)
    assert not attend(Call(q, k, v), Wish(mode="exact", tolerance=0)).heads[0][0].over_tolerance


@pytest.mark.parametrize("mode", ["moment", "favor_plus"])
def test_values_that_overflow_a_state_are_recomputed(mode):
    q, k, v = heads_of(300, heads=1)
    call = Call(q, k, (v * 1e38).clamp(-3e38, 3e38))
    answer = attend(call, Wish(mode=mode))
    assert modes(answer) == [["exact"]]
    assert errors(answer.output, call) < 1e-5


@pytest.mark.parametrize("mode", ["hybrid", "moment"])
@pytest.mark.parametrize("place", [0, 16, 31])
def test_no_period_of_the_queries_hides_from_the_audit(mode, place):
    """Queries that are easy where a regular audit would look, and hard elsewhere."""
    q, k, v = heads_of(2048, heads=1, dim=32)
    q *= 3
    q[:, :, place::32] *= 0.02
    call = Call(q, k, v)
    lax, strict = (attend(call, Wish(mode=mode, policy=policy)) for policy in ("best_effort", "strict"))
    assert lax.heads[0][0].relative_error == pytest.approx(float(errors(lax.output, call)), rel=0.3)
    assert modes(strict) == [["exact"]]


@pytest.mark.parametrize("mode", ["moment", "mean_v", "taylor2", "hybrid", "auto"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_needle_that_makes_the_head_is_not_missed(mode, causal):
    """One query that sees one key of a huge value, whose row alone is most of the head's norm."""
    q, k, v = heads_of(2048, heads=1, dim=32, spread=0.3)
    q[..., 0], q[0, 0, 1333, 0] = 1, -1
    k[..., 0], k[0, 0, 700, 0] = 0, -160
    v = 1 + 0.1 * v
    v[0, 0, 700] = 300
    call = Call(q, k, v, Visible(causal=causal))
    strict = attend(call, Wish(mode=mode, threshold=1000))
    assert errors(strict.output, call) < 0.1
    lax = attend(call, Wish(mode=mode, threshold=1000, policy="best_effort"))
    assert errors(lax.output, call) < 0.1 or (lax.heads[0][0].over_tolerance and lax.heads[0][0].max_row_error > 0.9)


def test_an_outlying_row_that_is_a_small_part_of_the_head_is_no_reason():
    q, k, v = heads_of(2048, heads=1, dim=32, spread=0.4)
    q[0, 0, 1333] *= 20
    head = attend(Call(q, k, v + 1), Wish(mode="moment")).heads[0][0]
    assert (head.mode, head.over_tolerance) == ("moment", False)
    assert head.max_row_error > 0.1 > head.relative_error


@pytest.mark.parametrize("sizes", [(1, 1, 1e30), (1, 1, 1e38), (1, 1, -1e300), (1e19, 1e19, None), (3e37, 3e37, None)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_no_magnitude_ends_in_a_failed_decomposition(sizes, dtype, causal):
    q, k, v = (x.clamp(-4, 4) for x in heads_of(300, heads=1, dim=8, dtype=dtype))
    q[0, 0, 3] = 0
    call = Call(q * sizes[0], k * sizes[1], v, Visible(causal=causal), scale=sizes[2])
    too_large = sizes[0] * sizes[1] * abs(sizes[2] or 1) > (1e37 if dtype == torch.float32 else 1e149)
    for mode in MODES:
        if mode in ("linear", "exact_bf16") or (mode == "nystrom" and causal):
            continue
        if mode in ("moment", "hybrid") and too_large:
            with pytest.raises(ParameterError, match="scale"):
                attend(call, Wish(mode=mode))
        else:
            assert errors(attend(call, Wish(mode=mode, threshold=100)).output, call) < 0.1


def test_auto_is_exact_where_the_scale_passes_float32():
    for call in (call_of(300, scale=1e300), call_of(300, scale=1e38), call_of(300, spread=1e19)):
        answer = attend(call, Wish(threshold=100))
        assert {choice.why for choice in answer.choices} == {"unrepresentable"}
        assert errors(answer.output, call).max() < 1e-5
        with pytest.raises(ParameterError, match="scale"):
            attend(call, Wish(mode="hybrid"))


def test_a_bias_may_have_another_dtype():
    bias = torch.randn(1, 1, 30, 30, generator=torch.Generator().manual_seed(2)).double()
    call = call_of(30, visible=Visible(mask=bias))
    assert errors(attend(call, Wish(mode="exact")).output, call).max() < 1e-5


def test_methods_are_compared_without_keys():
    call = call_of(3, 0)
    for trial in trials(call, contenders(call, None, None), Options()):
        assert torch.isnan(trial.rank_correlation).all()
        assert not trial.audit.error.any()
