"""Hybrid attention: exact where it says so, equal to its definition elsewhere, and honest about what it misses."""

import pytest
import torch
from attention.heads_of import call_of, heads_of
from torch.testing import assert_close

from logitd_kernels.attention.call import Call, Options, Visible
from logitd_kernels.attention.hybrid import Parts, hybrid
from logitd_kernels.attention.hybrid.cost import cost_of
from logitd_kernels.attention.hybrid.far import far_states
from logitd_kernels.attention.hybrid.fit import Orders, coefficients_of, fitted
from logitd_kernels.attention.hybrid.head import Head, Window
from logitd_kernels.attention.hybrid.scratch import Scratch
from logitd_kernels.attention.hybrid.tile import attend
from logitd_kernels.attention.mean import mean_v
from logitd_kernels.attention.moment.attend import moment
from logitd_kernels.attention.moment.calibrate import fit_basis
from logitd_kernels.attention.moment.read import PLAIN
from logitd_kernels.attention.reference import reference
from logitd_kernels.errors import ParameterError

CAUSAL = Visible(causal=True)
OPTIONS = Options(rank=6)


def relative(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


def head_of(queries, keys, offset, window, heavy=(0, 70, 333), dim=8, scratch=None):
    q, k, v = (x[0, 0] for x in heads_of(queries, keys, dim=dim, dtype=torch.float64, heads=1, spread=1.2))
    basis = fit_basis(q[None] / 3, k[None], 4)[0]
    kept = torch.tensor([key for key in heavy if key < keys])
    return Head(q / 3, k, v, offset, window, kept, basis, scratch or Scratch(torch.float64))


def by_definition(head, coefficients):
    """Every weight: e^s of what is exact, the polynomial of what is far, around the far keys' own means."""
    a0, a1, a2 = coefficients
    basis, keys, positions = head.basis, torch.arange(len(head.k)), torch.arange(len(head.q)) + head.offset
    k, block = head.k - basis.key_centre, (positions // 64)[:, None]
    seen = keys[None] <= positions[:, None] if head.window.causal else torch.ones(len(head.q), len(k), dtype=torch.bool)
    near = (keys // 64 >= block - head.window.before) & (keys // 64 <= block + head.window.after)
    near |= torch.isin(keys, head.heavy)
    far = seen & ~near
    x = head.q - basis.query_centre
    omega, inner, low = k @ basis.query_centre, x @ k.T, (x @ basis.query_map.T) @ (k @ basis.key_map.T).T
    w = torch.exp(omega) * far
    share = w / w.sum(1, keepdim=True).clamp(min=1e-300)
    mean, low_mean = (share * inner).sum(1, keepdim=True), (share * low).sum(1, keepdim=True)
    variance = (share * (low - low_mean) ** 2).sum(1, keepdim=True)
    kappa = variance.clamp(max=1)
    polynomial = a0 + a1 * (inner - mean) + a2 / 2 * ((low - low_mean) ** 2 - kappa)
    weights = w * polynomial * torch.exp(mean + variance.clamp(max=4) / 2)
    weights = weights + torch.exp(omega + inner) * (seen & near)
    return torch.nan_to_num(weights @ head.v / weights.sum(1, keepdim=True))


@pytest.mark.parametrize("coefficients", [PLAIN, (0.9, 1.2, 0.7)])
@pytest.mark.parametrize("window", [Window(1, 1, False), Window(0, 2, False), Window(4, 0, True), Window(0, 0, True)])
@pytest.mark.parametrize(
    ("queries", "keys", "offset"),
    [(700, 700, 0), (1500, 1500, 0), (100, 700, 600), (65, 500, -30), (400, 130, 0), (400, 130, -270), (1, 640, 639)],
)
def test_equals_its_definition(queries, keys, offset, window, coefficients):
    head = head_of(queries, keys, offset, window)
    output, bad = attend(head, far_states(head), coefficients)
    assert_close(output, by_definition(head, coefficients), rtol=1e-8, atol=1e-9)
    blind = torch.arange(queries) + offset < 0 if window.causal else torch.zeros(queries, dtype=torch.bool)
    assert torch.equal(bad, blind)


def test_scratch_memory_is_not_told_apart():
    """What one head leaves behind does not reach the next."""
    scratch, window = Scratch(torch.float64), Window(1, 1, False)
    for keys in (900, 130, 700):
        want = attend(head := head_of(300, keys, 7, window), far_states(head), PLAIN)[0]
        got = attend(head := head_of(300, keys, 7, window, scratch=scratch), far_states(head), PLAIN)[0]
        assert torch.equal(got, want)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128])
def test_a_window_that_covers_all_is_exact(length):
    for visible in (Visible(), CAUSAL):
        call = call_of(length, visible=visible)
        assert relative(hybrid(call, OPTIONS).output, reference(call).output) < 1e-6


def test_a_wide_window_that_covers_all_is_exact():
    for call in (call_of(1000), call_of(1000, visible=CAUSAL)):
        found = hybrid(call, OPTIONS, parts=Parts(near=16, recent=16))
        assert relative(found.output, reference(call).output) < 1e-6
        assert (found.audit.error < 1e-6).all()


CALLS = {
    "plain": {"queries": 700},
    "gqa": {"queries": 700, "heads": 4, "kv_heads": 2, "dim_v": 5},
    "fewer queries": {"queries": 200, "keys": 900},
    "more queries": {"queries": 900, "keys": 300},
    "lengths": {"queries": 600, "batch": 3, "visible": Visible(lengths=torch.tensor([600, 0, 333]))},
    "causal": {"queries": 900, "visible": CAUSAL},
    "causal, fewer queries": {"queries": 200, "keys": 900, "visible": CAUSAL},
    "causal, more queries": {"queries": 900, "keys": 500, "visible": CAUSAL},
    "causal, top left": {"queries": 900, "keys": 500, "visible": Visible(causal=True, align="top_left")},
    "causal, lengths": {
        "queries": 600,
        "batch": 3,
        "visible": Visible(causal=True, lengths=torch.tensor([600, 0, 433])),
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_is_near_exact_attention_and_nearer_than_its_state(name):
    call = call_of(**CALLS[name], spread=0.7)
    want = reference(call).output
    found = hybrid(call, Options())
    assert relative(found.output, want) < min(0.12, relative(moment(call, Options()).output, want))
    assert (found.output[want == 0] == 0).all()
    assert not found.nonpositive_rows.any()


def test_one_huge_logit_gives_its_value():
    q, k, v = heads_of(1500)
    for place in (0, 777, 1499):
        keys = k.clone()
        keys[:, :, place] = 0
        keys[..., 0] = 0
        keys[:, :, place, 0] = 400
        queries = q.clone()
        queries[..., 0] = 1
        found = hybrid(Call(queries, keys, v), OPTIONS).output
        assert_close(found, v[:, :, place : place + 1].expand_as(found), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("visible", [Visible(), CAUSAL])
def test_constant_keys_give_the_mean(visible):
    q, k, v = heads_of(900)
    call = Call(q * 10, k[:, :, :1].expand_as(k), v, visible)
    assert_close(hybrid(call, OPTIONS).output, mean_v(call).output, rtol=1e-4, atol=1e-5)
    call = Call(q, k, v, visible, scale=0.0)
    assert_close(hybrid(call, OPTIONS).output, mean_v(call).output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("of", ["key", "query", "both"])
def test_a_needle_is_answered(of):
    """One key that one query looks for, far from both and from every audited row."""
    q, k, v = heads_of(2000, dim=64, spread=0.7)
    query, key = 1234, 345
    direction = torch.nn.functional.normalize(k[:, :, key], dim=-1)
    norms = {"key": (6.0, 40.0), "query": (40.0, 6.0), "both": (16.0, 16.0)}[of]  # a score of 30 beside a log of 7.6
    q[:, :, query], k[:, :, key] = direction * norms[0], direction * norms[1]
    v[:, :, key] *= 20
    call = Call(q, k, v)
    found, want = hybrid(call, Options()), reference(call).output
    assert relative(want[:, :, query], v[:, :, key]) < 1e-3
    assert relative(found.output[:, :, query], want[:, :, query]) < 0.1


def test_a_needle_among_equal_norms_needs_a_head_that_is_reported():
    q, k, v = heads_of(2000, dim=64, spread=1.2)
    q[:, :, 1234] = k[:, :, 345]  # a score of 11.5 with a norm like everybody's
    call = Call(q, k, v)
    assert (reference(call).max_prob[:, :, 1234] > 0.5).all()
    assert (hybrid(call, Options()).audit.error > 0.12).all()


def test_the_audit_reports_what_is_there():
    call = call_of(1200, heads=6, spread=1.0)
    found, want = hybrid(call, OPTIONS), reference(call).output
    true = (found.output - want).flatten(2).norm(dim=2) / want.flatten(2).norm(dim=2)
    assert ((found.audit.error > 0.7 * true) & (found.audit.error < 1.3 * true)).all()
    assert ((found.audit.low < true) & (true < found.audit.high)).double().mean() >= 0.75
    assert (found.audit.mean_v_error > 1.5 * found.audit.error).all()


def test_a_fit_finds_the_coefficients_that_made_an_answer():
    head = head_of(700, 700, 0, Window(1, 1, False))
    rows, wanted = torch.arange(5, 700, 17), (0.8, 1.3, 0.6)
    exact = by_definition(head, wanted)[rows]
    far = far_states(head)
    logits = head.q[rows] @ head.k.T
    answered = _Rows(logits.logsumexp(1, keepdim=True), logits.softmax(1), exact)
    found = Orders.of(head, far, rows, answered)
    made, fit, plain = found.errors([wanted, fitted(found), PLAIN])
    assert made < 1e-9
    assert fit < 0.5 * plain
    assert coefficients_of(found, found) == fitted(found) != PLAIN


class _Rows:
    def __init__(self, total, weights, output):
        self.total, self.weights, self.output = total, weights, output


def test_a_fit_that_makes_other_rows_worse_is_dropped():
    generator = torch.Generator().manual_seed(0)
    exact, far = torch.rand(20, 4, generator=generator), torch.rand(3, 20, 4, generator=generator)
    good = exact + far.sum(0)
    noisy = Orders(exact, far, torch.randn(20, 3, generator=generator))
    right = Orders(exact, far, good[:, :-1] / good[:, -1:])
    assert fitted(noisy) != PLAIN
    assert coefficients_of(noisy, right) == PLAIN


def test_later_tokens_do_not_reach_earlier_answers():
    q, k, v = heads_of(1200, dim=8)
    later = [x.clone() for x in (q, k, v)]
    for x in later:
        x[:, :, 700:] *= 30
    before = hybrid(Call(q, k, v, CAUSAL), OPTIONS).output[:, :, :700]
    assert_close(hybrid(Call(*later, CAUSAL), OPTIONS).output[:, :, :700], before, rtol=1e-6, atol=1e-6)


def test_a_call_of_the_last_queries_continues_the_whole():
    """Blocks are counted from the first key: what a position answers does not depend on which queries come along."""
    q, k, v = heads_of(1000, dim=8)
    whole = hybrid(Call(q, k, v, CAUSAL), OPTIONS)
    basis = fit_basis(q[0, :, :256] / 8**0.5, k[0, :, :256], 6)
    last = hybrid(Call(q[:, :, 613:], k, v, CAUSAL), OPTIONS, basis)
    assert_close(last.output, whole.output[:, :, 613:], rtol=1e-5, atol=1e-6)


def test_a_sequence_does_not_depend_on_its_mates_or_its_padding():
    q, k, v = heads_of(500, batch=3)
    lengths = torch.tensor([500, 233, 400])
    k[1, :, 233:], v[1, :, 233:], k[2, :, 400:] = torch.nan, torch.nan, torch.inf
    for causal in (False, True):
        together = hybrid(Call(q, k, v, Visible(causal, lengths=lengths)), OPTIONS)
        for row, length in enumerate(lengths.tolist()):
            alone = hybrid(Call(*(x[row : row + 1, :, :length] for x in (q, k, v)), Visible(causal)), OPTIONS)
            assert torch.equal(alone.output[0], together.output[row, :, :length])
            assert (together.output[row, :, length:] == 0).all()
            assert torch.equal(alone.audit.error[0], together.audit.error[row])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_answers_in_the_dtype_of_the_queries(dtype):
    call = call_of(600, dtype=dtype, spread=0.6)
    found = hybrid(call, OPTIONS)
    assert found.output.dtype == dtype
    assert relative(found.output, reference(call).output) < 0.1


def test_huge_norms_leave_everything_finite():
    for size in (1e3, 1e9, 1e18):
        for visible in (Visible(), CAUSAL):
            q, k, v = heads_of(500)
            found = hybrid(Call(q * size, k * size, v, visible), OPTIONS)
            assert torch.isfinite(found.output).all()


@pytest.mark.parametrize(("queries", "keys", "batch"), [(0, 5, 1), (5, 0, 1), (0, 0, 1), (5, 5, 0)])
def test_nothing_gives_nothing(queries, keys, batch):
    for visible in (Visible(), CAUSAL):
        q, k, v = heads_of(queries, keys)
        found = hybrid(Call(q[:batch], k[:batch], v[:batch], visible), OPTIONS)
        assert found.output.shape == (batch, 2, queries, 16)
        assert (found.output == 0).all() or keys == queries == 5
        assert found.audit.error.shape == (batch, 2)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("window", {"visible": Visible(window=4)}),
        ("mask", {"visible": Visible(mask=torch.ones(1, 1, 9, 9, dtype=torch.bool))}),
        ("softcap", {"softcap": 3.0}),
        ("sink_logits", {"sink_logits": torch.zeros(2)}),
    ],
)
def test_refuses_what_a_state_cannot_keep(field, options):
    with pytest.raises(ParameterError) as caught:
        hybrid(call_of(9, **options), OPTIONS)
    assert caught.value.field == field


def test_cost_is_linear_in_the_length():
    for visible in (Visible(), CAUSAL):
        one = call_of(4, heads=1, visible=visible)
        calls = [
            Call(*(x[:, :, :1].expand(-1, -1, length, -1) for x in (one.q, one.k, one.v)), visible)
            for length in (4096, 32768)
        ]
        few, many = (cost_of(call, 12, Parts(), calibrated=True) * call.queries**2 for call in calls)
        assert few < many < 8.05 * few


def test_a_state_and_its_exact_parts_weigh_what_they_hold():
    call = call_of(300, dim=64, visible=CAUSAL)
    assert hybrid(call, Options()).state_bytes == 4 * (143 * 65 + (5 * 64 + 4) * 128)
