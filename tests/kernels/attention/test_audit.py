"""The audit: its exact rows are exact, its figures what they say, its interval as wide as it must be."""

import math
from dataclasses import fields

import pytest
import torch
from attention.heads_of import call_of, heads_of
from torch.testing import assert_close

from logitd_kernels.attention.audit import Audit, Yardstick, audit
from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.exact_rows import exact_rows
from logitd_kernels.attention.mean import mean_v
from logitd_kernels.attention.moment.calibrate import calibrated_rows
from logitd_kernels.attention.reference import reference
from logitd_kernels.attention.sampling import audit_rows, rows_of
from logitd_kernels.errors import ShapeError

GENERATOR = torch.Generator().manual_seed(0)
CALLS = {
    "plain": {"queries": 40, "keys": 50},
    "gqa": {"queries": 40, "heads": 4, "kv_heads": 2, "dim_v": 5},
    "causal": {"queries": 40, "visible": Visible(causal=True)},
    "blind queries": {"queries": 40, "keys": 20, "visible": Visible(causal=True)},
    "window": {"queries": 40, "visible": Visible(window=5, sinks=2)},
    "lengths": {"queries": 40, "batch": 3, "visible": Visible(causal=True, lengths=torch.tensor([40, 0, 13]))},
    "mask": {"queries": 40, "visible": Visible(mask=torch.rand(1, 2, 40, 40, generator=GENERATOR) > 0.5)},
    "bias": {"queries": 40, "visible": Visible(mask=torch.randn(1, 1, 40, 40, generator=GENERATOR))},
    "softcap": {"queries": 40, "softcap": 2.0, "scale": 0.7},
    "sink logits": {"queries": 40, "sink_logits": torch.tensor([1.0, 30.0])},
    "float64": {"queries": 40, "dtype": torch.float64},
    "bfloat16": {"queries": 40, "dtype": torch.bfloat16},
    "no keys": {"queries": 40, "keys": 0},
}


@pytest.mark.parametrize("name", CALLS)
def test_exact_rows_are_exact(name):
    call, rows = call_of(**CALLS[name]), torch.tensor([0, 3, 12, 13, 39])
    found, want = exact_rows(call, rows), reference(call)
    assert_close(found.output.double(), want.output[:, :, rows], rtol=1e-5, atol=1e-5)
    assert_close(found.entropy.double(), want.entropy[:, :, rows], rtol=1e-5, atol=1e-5)
    assert_close(found.max_prob.double(), want.max_prob[:, :, rows], rtol=1e-5, atol=1e-5)
    assert torch.equal(found.seen == 0, want.lse[:, :, rows] == -torch.inf)


@pytest.mark.parametrize("name", ["plain", "causal", "lengths"])
def test_the_mean_of_what_is_seen_is_the_baseline(name):
    call, rows = call_of(**CALLS[name]), torch.arange(40)
    assert_close(exact_rows(call, rows).mean_v, mean_v(call).output, rtol=1e-5, atol=1e-6)


def test_what_no_audited_query_sees_is_not_read():
    q, k, v = heads_of(20)
    mask = torch.ones(1, 1, 20, 20, dtype=torch.bool)
    mask[..., 7] = False
    k[:, :, 7], v[:, :, 7] = torch.nan, torch.nan
    assert torch.isfinite(exact_rows(Call(q, k, v, Visible(mask=mask)), torch.arange(20)).output).all()


@pytest.mark.parametrize("queries", [0, 1, 2, 5, 63, 64, 65, 100, 128, 4096])
def test_rows_to_fit_and_to_report_are_apart(queries):
    fit, report = audit_rows(queries)
    assert len(report) == min(64, queries)
    assert not torch.isin(fit, report).any()
    for rows in (fit, report):
        assert rows.dtype == torch.int64
        assert (rows.diff() > 0).all()
        assert ((rows >= 0) & (rows < queries)).all()
    assert queries < 128 or len(fit) == 32


def test_a_relative_error_is_measured():
    call = call_of(200, dim_v=3)
    want = reference(call).output.float()
    found = audit(call, want * 1.25)
    assert_close(found.error, torch.full((1, 2), 0.25).double(), rtol=1e-4, atol=0)
    assert_close(found.max_row_error, found.error, rtol=1e-4, atol=0)
    assert (audit(call, want).error < 1e-6).all()
    wrong = want.clone()
    wrong[:, 1, audit_rows(200)[1][10]] = 0
    assert audit(call, wrong).max_row_error[0].tolist() == pytest.approx([0, 1], abs=1e-5)


def test_the_baseline_is_the_error_of_the_mean():
    call = call_of(500, spread=1.5)
    answer = mean_v(call).output
    found = audit(call, answer)
    assert_close(found.mean_v_error, found.error, rtol=1e-5, atol=1e-6)


def test_statistics_of_the_weights():
    call = call_of(64, spread=1.5)
    want, found = reference(call), audit(call, torch.zeros(1, 2, 64, 16))
    entropy = want.entropy.mean(2)
    assert_close(found.entropy, entropy, rtol=1e-4, atol=1e-5)
    assert_close(found.normalised_entropy, entropy / torch.tensor(64.0).log(), rtol=1e-4, atol=1e-5)
    assert_close(found.max_prob, want.max_prob.mean(2), rtol=1e-4, atol=1e-5)


def test_a_lookup_is_called_saturated():
    q, k, v = heads_of(100, heads=2)
    q[:, 0] = k[:, 0] * 40
    assert audit(Call(q, k, v), v).saturated.tolist() == [[True, False]]


def test_the_interval_holds_the_error_nine_times_in_ten():
    inside = []
    for seed in range(25):
        call = call_of(400, heads=4, dim=4, seed=seed)
        want, generator = reference(call).output, torch.Generator().manual_seed(seed)
        sizes = torch.rand(1, 4, 400, 1, generator=generator).exp() * 0.1  # rows that are more wrong than others
        answer = want + sizes * torch.randn(want.shape, generator=generator).double() * want.norm(dim=3, keepdim=True)
        true = (answer - want).flatten(2).norm(dim=2) / want.flatten(2).norm(dim=2)
        found = audit(call, answer.float(), seed=seed)
        inside.append((found.low <= true) & (true <= found.high))
    assert torch.stack(inside).double().mean() >= 0.9


def test_the_same_seed_gives_the_same_interval():
    call = call_of(200)
    want, generator = reference(call).output.float(), torch.Generator().manual_seed(0)
    answer = want * (1 + torch.randn(1, 2, 200, 1, generator=generator).mul(2).exp())  # rows of very different errors
    first, again, other = (audit(call, answer, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.high, again.high)
    assert not torch.equal(first.low, other.low) or not torch.equal(first.high, other.high)


def test_queries_that_see_nothing_do_not_count():
    call = call_of(300, 100, visible=Visible(causal=True))
    answer = reference(call).output.float()
    answer[:, :, :200] = 7.0
    assert (audit(call, answer).error < 1e-6).all()


def test_nothing_to_audit_is_no_error():
    for call in (call_of(5, 0), call_of(0, 5), Call(*(x[:0] for x in heads_of(5)))):
        found = audit(call, torch.zeros(*call.q.shape[:3], 16))
        assert found.error.shape == call.q.shape[:2]
        assert not found.error.any()
        assert not found.saturated.any()


def test_an_answer_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match="answer"):
        audit(call_of(5), torch.zeros(1, 2, 4, 16))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_infinitely_wrong(bad):
    call = call_of(2000)
    audited = reference(call).output.float()
    audited[0, 1, audit_rows(2000)[1][5], 3] = bad
    broken = reference(call).output.float()
    broken[0, 1, 1234, 3] = bad  # wherever it stands
    for answer in (audited, broken):
        found = audit(call, answer)
        for part in (found.error, found.low, found.high, found.max_row_error):
            assert (part[0, 0] < 1e-5, part[0, 1]) == (True, math.inf)


def test_where_exact_attention_is_not_finite_no_answer_is_right():
    q, k, v = heads_of(20, dtype=torch.float64)
    found = audit(Call(q * 1e200, k * 1e200, v), torch.zeros(1, 2, 20, 16, dtype=torch.float64))
    assert (found.error == math.inf).all()


def test_an_answer_where_0_is_right_is_infinitely_wrong():
    q, k, v = heads_of(100)
    found = audit(Call(q, k, torch.zeros_like(v)), v)
    assert (found.error == math.inf).all()
    assert (found.high == math.inf).all()


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_values_of_any_size_are_measured(size):
    q, k, v = heads_of(200, dtype=torch.float64)
    call = Call(q, k, v * size)
    found = audit(call, reference(call).output * 1.25)
    assert_close(found.error, torch.full((1, 2), 0.25).double(), rtol=1e-4, atol=0)
    assert_close(found.max_row_error, found.error, rtol=1e-4, atol=0)


@pytest.mark.parametrize("size", [1e20, 3e38])
def test_scores_that_pass_float32_are_audited_in_float64(size):
    q, k, v = heads_of(20, dim=8)
    q, k = q.clamp(-1, 1) * size, k.clamp(-1, 1) * size
    call, rows = Call(q, k, v), torch.arange(20)
    assert_close(exact_rows(call, rows).output.double(), reference(call).output, rtol=1e-5, atol=1e-5)


def test_values_whose_sum_passes_float32_are_audited_in_float64():
    q, k, v = heads_of(20)
    call, rows = Call(q, k, torch.full_like(v, 3e38)), torch.arange(20)
    found = exact_rows(call, rows)
    assert_close(found.output, call.v)
    assert_close(found.mean_v, call.v)


@pytest.mark.parametrize(("own", "of_mask"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_a_bias_may_have_another_dtype(own, of_mask):
    bias = torch.randn(1, 1, 40, 40, generator=torch.Generator().manual_seed(2)).to(of_mask)
    call, rows = call_of(40, dtype=own, visible=Visible(mask=bias)), torch.arange(40)
    found = exact_rows(call, rows).output
    assert found.dtype == own
    assert_close(found.double(), reference(call).output, rtol=1e-5, atol=1e-5)


def test_every_row_may_be_audited_and_the_seed_says_which():
    drawn = [audit_rows(2048, seed=seed)[1] for seed in range(300)]
    assert torch.equal(drawn[7], audit_rows(2048, seed=7)[1])
    assert not torch.equal(drawn[7], drawn[8])
    assert torch.stack([rows // 32 for rows in drawn]).eq(torch.arange(64)).all()
    assert len(torch.cat(drawn).unique()) == 2048


@pytest.mark.parametrize(("queries", "dim", "causal"), [(2048, 16, False), (700, 64, False), (2048, 16, True)])
def test_calibrated_rows_are_left_out(queries, dim, causal):
    call = call_of(queries, heads=1, dim=dim, visible=Visible(causal=causal))
    calibrated = calibrated_rows(queries, dim, causal)
    for seed in range(5):
        fit, report = rows_of(call, 64, seed)
        assert not torch.isin(fit, report).any()
        for rows in (fit, report):
            beyond = rows[rows >= 256 + 64] if causal else rows  # where a causal stretch is all calibrated, it must be
            assert not torch.isin(beyond, calibrated).any()
        assert len(report) == 64


def test_outlying_rows_are_told_apart():
    """The error of one query that looks elsewhere: in the largest of a row, and by its share in that of the head."""
    q, k, v = heads_of(2000, heads=1)
    q[0, 0, 333] *= 9
    call = Call(q, k, v)
    want = reference(call).output
    answer = want.float().clone()
    answer[0, 0, 333] = 0
    found, plain = audit(call, answer), audit(call, want.float())
    assert found.error < 1e-5
    assert_close(found.max_row_error.item(), 1.0)
    share = float(want[0, 0, 333].norm() / want.norm())
    assert found.outlying_error.item() == pytest.approx(share, rel=0.3)
    assert plain.outlying_error < 1e-5


def test_a_yardstick_serves_any_number_of_answers():
    call = call_of(200, heads=2, batch=2)
    yardstick = Yardstick.of(call, 20, 3)
    for answer in (torch.zeros(2, 2, 200, 16), exact(call).output, 2 * exact(call).output):
        alone = audit(call, answer, 20, 3)
        for field in fields(Audit):
            assert torch.equal(getattr(yardstick.audit(answer), field.name), getattr(alone, field.name))
    assert yardstick.audit(torch.zeros(2, 2, 200, 16)).error.tolist() == [[1, 1], [1, 1]]
