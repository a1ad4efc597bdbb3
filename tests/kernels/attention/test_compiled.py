"""The compiled loops of moment and hybrid attention: what torch says in float64, under every instruction set."""

import pytest
import torch
from attention.heads_of import call_of, heads_of
from torch.testing import assert_close

from logitd_kernels import native
from logitd_kernels.attention.call import Options, Visible
from logitd_kernels.attention.exact_rows import HeadRows
from logitd_kernels.attention.hybrid import compiled as hybrid_loops
from logitd_kernels.attention.hybrid import hybrid
from logitd_kernels.attention.hybrid.far import Far
from logitd_kernels.attention.hybrid.fit import Orders
from logitd_kernels.attention.hybrid.head import Head, Window
from logitd_kernels.attention.hybrid.scratch import Scratch
from logitd_kernels.attention.hybrid.tile import attend
from logitd_kernels.attention.moment import compiled as moment_loops
from logitd_kernels.attention.moment.attend import moment
from logitd_kernels.attention.moment.calibrate import fit_basis
from logitd_kernels.attention.moment.read import PLAIN
from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.select import cpu

pytestmark = pytest.mark.skipif(native.module is None, reason="no compiled kernels in this install")
WINDOWS = [Window(1, 1, False), Window(0, 2, False), Window(4, 0, True), Window(0, 0, True)]


@pytest.fixture(params=cpu.isas() if native.module else [])
def _isa(request):
    """Every instruction set, those included that `serves` leaves to torch."""
    before = cpu.isa()
    cpu.use_isa(request.param)
    yield
    cpu.use_isa(before)


def always(monkeypatch, answer=True):
    for module in ("hybrid.far", "moment.compiled"):
        monkeypatch.setattr(
            f"logitd_kernels.attention.{module}.serves", lambda dtype: answer and dtype == torch.float32
        )


def head_of(dtype, queries, keys, offset, window, dim, dim_v, rank):
    q, k, v = (x[0, 0] for x in heads_of(queries, keys, dim=dim, dim_v=dim_v, dtype=torch.float64, heads=1, spread=1.2))
    basis = fit_basis(q[None] / 3, k[None], rank)[0].to(dtype)
    heavy = torch.tensor([key for key in (0, 70, 333) if key < keys])
    q, k, v = ((x / 3 if x is q else x).to(dtype) for x in (q, k, v))
    return Head(q, k, v, offset, window, heavy, basis, Scratch(dtype))


@pytest.mark.usefixtures("_isa")
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("queries", "keys", "offset", "dim", "dim_v", "rank"),
    [(700, 700, 0, 8, 8, 4), (100, 700, 600, 16, 33, 16), (65, 500, -30, 3, 1, 1), (400, 130, -270, 64, 64, 12)],
)
def test_a_head_and_its_fit_equal_torch(monkeypatch, queries, keys, offset, dim, dim_v, rank, window):
    always(monkeypatch)
    shape = queries, keys, offset, window, dim, dim_v, rank
    plain, loops = head_of(torch.float64, *shape), head_of(torch.float32, *shape)
    for coefficients in (PLAIN, (0.9, 1.2, 0.7)):
        want, blind = attend(plain, far := Far(plain), coefficients)
        got, bad = attend(loops, found := Far(loops), coefficients)
        assert far.compiled is None
        assert found.compiled is not None
        assert torch.equal(bad, blind)
        assert_close(got.double(), want, rtol=2e-4, atol=2e-5)
    if not window.causal:
        rows = torch.arange(0, queries, 7)
        total = torch.logsumexp(plain.q[rows] @ plain.k.T, 1, keepdim=True)
        weights = torch.exp(plain.q[rows] @ plain.k.T - total)
        want = Orders.of(plain, far, rows, HeadRows(total, weights, None, weights @ plain.v))
        got = Orders.of(loops, found, rows, HeadRows(total, weights, None, weights @ plain.v).to(torch.float32))
        assert_close(got.exact.double(), want.exact, rtol=2e-4, atol=2e-5)
        assert_close(got.far.double(), want.far, rtol=2e-4, atol=1e-4)


@pytest.mark.usefixtures("_isa")
@pytest.mark.parametrize("pieces", [[1], [63], [64], [65], [200], [1, 1, 62, 64, 3], [0, 5]])
@pytest.mark.parametrize(("dim", "dim_v", "rank"), [(8, 8, 4), (3, 1, 1), (16, 33, 16), (64, 64, 12)])
def test_a_state_equals_torch(monkeypatch, pieces, dim, dim_v, rank):
    always(monkeypatch)
    q, k, v = (x[0] for x in heads_of(70, sum(pieces), dim=dim, dim_v=dim_v, dtype=torch.float64, heads=2, spread=1.2))
    basis = fit_basis(q / 3, k, rank)
    plain, loops = MomentState(basis, dim_v), MomentState(basis.to(torch.float32), dim_v)
    for state in (plain, loops):
        for some, values in zip(k.split(pieces, 1), v.split(pieces, 1), strict=True):
            state.append(some, values)
    assert plain.tokens == loops.tokens
    assert_close(loops.log_scale.double(), plain.log_scale, rtol=1e-5, atol=1e-5)
    assert_close(loops.sums.double(), plain.sums, rtol=1e-4, atol=1e-4)
    want, got = torch.empty(2, 70, dim_v, dtype=torch.float64), torch.empty(2, 70, dim_v)
    assert not plain.answer(q, 1 / 3, want).any()
    assert not loops.answer(q, 1 / 3, got).any()
    assert_close(got.double(), want, rtol=2e-4, atol=2e-5)


def test_an_empty_state_has_no_answer():
    q, k, v = (x[0] for x in heads_of(5, 9, heads=2))
    out = torch.full((2, 5, v.shape[2]), torch.nan)
    assert MomentState(fit_basis(q, k, 3), v.shape[2]).answer(q, 1.0, out).all()
    assert (out == 0).all()


@pytest.mark.parametrize("visible", [Visible(), Visible(causal=True)])
def test_a_call_has_the_answer_that_it_has_without_compiled_loops(monkeypatch, visible):
    call = call_of(700, heads=2, visible=visible)
    for method in (hybrid, moment):
        always(monkeypatch, True)
        loops = method(call, Options(rank=6))
        always(monkeypatch, False)
        plain = method(call, Options(rank=6))
        assert_close(loops.output, plain.output, rtol=1e-3, atol=1e-4)
        assert loops.cost == plain.cost


def test_arrays_that_do_not_fit_are_refused():
    """The compiled module checks what it is given: a wrong shape must not become a wild read."""
    state = torch.zeros(1 + 8 + 10, 9), torch.zeros(1)
    maps = torch.zeros(8), torch.zeros(4, 8), torch.zeros(4, 8)
    k, v, centre = torch.zeros(5, 8), torch.zeros(5, 8), torch.zeros(8)
    native.module.append(k, v, centre, *maps, *state)
    for wrong in (
        (k, v[:4], centre, *maps, *state),
        (k, v, centre[:7], *maps, *state),
        (k, v, centre, maps[0][:7], *maps[1:], *state),
        (k, v, centre, *maps, state[0][:18], state[1]),
        (k[:, :7].contiguous(), v, centre, *maps, *state),
    ):
        with pytest.raises(ValueError, match=r"disagree|another"):
            native.module.append(*wrong)
    with pytest.raises(ValueError, match="disagree"):
        native.module.read(k, 1.0, *maps, *state, torch.zeros(4, 8), torch.zeros(5, dtype=torch.bool))
    with pytest.raises(TypeError):
        native.module.append(k.double(), v, centre, *maps, *state)


def test_windows_that_pass_the_keys_are_refused():
    head = head_of(torch.float32, 128, 128, 0, WINDOWS[0], 8, 8, 4)
    loops = hybrid_loops.Compiled(head, *(Far(head).before, Far(head).behind))._native
    out, bad = torch.zeros(9, 64, 8), torch.zeros(9, 64, dtype=torch.bool)
    with pytest.raises(ValueError, match="pass the keys"):
        loops.attend(torch.zeros(9, 64, 8), PLAIN, out, bad)
    with pytest.raises(ValueError, match="passes the keys"):
        loops.orders(torch.zeros(1, 8), torch.tensor([7]), torch.zeros(1), torch.zeros(1, 9), torch.zeros(3, 1, 9))


def test_portable_code_is_left_to_torch():
    before = cpu.isa()
    cpu.use_isa("portable")
    assert moment_loops.serves(torch.float32) == native.module.fuses()
    cpu.use_isa(before)
    assert not moment_loops.serves(torch.float64)
