"""Hybrid attention: exact where it says so, equal to its definition elsewhere, and honest about what it misses."""

import pytest
import torch
from attention.heads_of import call_of, heads_of
from torch.testing import assert_close

from logitd_kernels.attention.call import Options, Visible
from logitd_kernels.attention.exact_rows import HeadRows
from logitd_kernels.attention.hybrid import Parts, hybrid
from logitd_kernels.attention.hybrid.far import Far
from logitd_kernels.attention.hybrid.fit import Orders, coefficients_of, fitted
from logitd_kernels.attention.hybrid.head import Head, Window
from logitd_kernels.attention.hybrid.scratch import Scratch
from logitd_kernels.attention.hybrid.tile import attend
from logitd_kernels.attention.moment.attend import moment
from logitd_kernels.attention.moment.calibrate import fit_basis
from logitd_kernels.attention.moment.read import PLAIN
from logitd_kernels.attention.reference import reference

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
    output, bad = attend(head, Far(head), coefficients)
    assert_close(output, by_definition(head, coefficients), rtol=1e-8, atol=1e-9)
    blind = torch.arange(queries) + offset < 0 if window.causal else torch.zeros(queries, dtype=torch.bool)
    assert torch.equal(bad, blind)


def test_scratch_memory_is_not_told_apart():
    """What one head leaves behind does not reach the next."""
    scratch, window = Scratch(torch.float64), Window(1, 1, False)
    for keys in (900, 130, 700):
        want = attend(head := head_of(300, keys, 7, window), Far(head), PLAIN)[0]
        got = attend(head := head_of(300, keys, 7, window, scratch=scratch), Far(head), PLAIN)[0]
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


def test_a_fit_finds_the_coefficients_that_made_an_answer():
    head = head_of(700, 700, 0, Window(1, 1, False))
    rows, wanted = torch.arange(5, 700, 17), (0.8, 1.3, 0.6)
    exact = by_definition(head, wanted)[rows]
    far = Far(head)
    logits = head.q[rows] @ head.k.T
    answered = HeadRows(logits.logsumexp(1, keepdim=True), logits.softmax(1), None, exact)
    found = Orders.of(head, far, rows, answered)
    made, fit, plain = found.errors([wanted, fitted(found), PLAIN])
    assert made < 1e-9
    assert fit < 0.5 * plain
    assert coefficients_of(found, found) == fitted(found) != PLAIN


def test_a_fit_that_makes_other_rows_worse_is_dropped():
    generator = torch.Generator().manual_seed(0)
    exact, far = torch.rand(20, 4, generator=generator), torch.rand(3, 20, 4, generator=generator)
    good = exact + far.sum(0)
    noisy = Orders(exact, far, torch.randn(20, 3, generator=generator))
    right = Orders(exact, far, good[:, :-1] / good[:, -1:])
    assert fitted(noisy) != PLAIN
    assert coefficients_of(noisy, right) == PLAIN
