"""The compiled backend: equal to the reference draw by draw, and the same bits whatever computes it."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from logitd_kernels import DenseRows, HeadRows, RowFault, available, check, pick, sample, softmax, uniform
from logitd_kernels.hot import Answers, hot_batch
from logitd_kernels.sampling.chain import draw_greedily, truncated
from logitd_kernels.sampling.order import DEFAULT
from logitd_kernels.select import cpu
from logitd_kernels.select.reference import ReferenceRow

pytestmark = pytest.mark.skipif(cpu.why_not() is not None, reason="this install has no compiled kernels")

VOCABS = [1, 7, 255, 256, 257, 1025, 4097, 32_000, 126_052, 262_144]
KINDS = {
    "normal": lambda x: x * 3,
    "flat": lambda x: x,
    "peaked": lambda x: x * 20,
    "ties": lambda x: torch.round(x * 2),
    "equal": lambda x: torch.full_like(x, 1.5),
    "masked": lambda x: torch.where(torch.arange(len(x)) % 97 == 0, x * 3, -torch.inf),
    "leading": lambda x: torch.where(torch.arange(len(x)) >= len(x) // 3, x, -torch.inf),
    "offset": lambda x: x + 1e5,
    "below": lambda x: x - 1e5,
    "huge": lambda x: x.sign() * 3e38,
    "denormal": lambda x: x * 1e-40,
    "outliers": lambda x: torch.where(torch.arange(len(x)) % 3 == 0, x * 4, torch.tensor(-53684.4)),
}
PARAMS = [
    {},
    {"temperature": 0},
    {"temperature": 1.7, "top_p": 0.5},
    {"top_k": 50, "top_p": 0.9, "temperature": 0.8},
    {"top_k": 5000},
    {"top_k": 3, "ties": "all"},
    {"top_p": 0.99},
    {"min_p": 0.05},
    {"min_p": 1e-4, "top_k": 300, "top_p": 0.95},
    {"temperature": 100.0, "top_k": 3000, "top_p": 0.3},
    {"temperature": 1e-38},
    {"temperature": 1e300},
]


def row_of(kind, vocab):
    return KINDS[kind](torch.randn(vocab, generator=torch.Generator().manual_seed(vocab)))


def native(rows, values, steps, logits=None):
    """Run one row many times, at different steps."""
    count = len(steps)
    own = [{**values, "step": step} for step in steps]
    batch = hot_batch(rows if logits is None else logits, [0] * count, own, [7] * count, [None] * count, [{}] * count)
    return cpu.sample_hot(batch)


def expected(row, values, steps):
    """What the reference keeps, and its token at each step."""
    ordered = ReferenceRow(row, 1.0)
    if values["temperature"] == 0:
        drawn = draw_greedily(ordered, values)
        return drawn.kept, [drawn.tokens[0].id] * len(steps)
    kept = truncated(ordered, values, DEFAULT.steps)
    masses = [min(uniform(7, 0, step) * kept.prefix.mass, np.nextafter(kept.prefix.mass, 0)) for step in steps]
    return kept, [token.id for token in kept.row.tokens_at(masses)]


@pytest.mark.parametrize("vocab", [vocab for vocab in VOCABS if vocab < 5000])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_reference_draw_by_draw(kind, vocab):
    compare(kind, vocab, range(60))


@pytest.mark.parametrize("vocab", [vocab for vocab in VOCABS if vocab > 5000])
@pytest.mark.parametrize("kind", ["normal", "flat", "ties", "outliers"])
def test_equals_the_reference_on_long_rows(kind, vocab):
    compare(kind, vocab, range(4))


@pytest.mark.long
@pytest.mark.parametrize("vocab", [1025, 32_000, 126_052])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_reference_in_a_million_draws(kind, vocab):
    compare(kind, vocab, range(2400))


def compare(kind, vocab, steps):
    row = row_of(kind, vocab)
    wrong = drawn_in_all = 0
    for parameters in PARAMS:
        values = check(parameters)
        want, tokens = expected(row, values, steps)
        got = native(row[None], values, steps)
        assert (got["status"] == 0).all()
        assert (got["kept"] == want.count).all(), parameters
        wrong += int((got["token"] != np.array(tokens)).sum())
        drawn_in_all += len(tokens)
        assert got["kept_mass"] == pytest.approx(want.mass, rel=1e-5), parameters
        assert got["entropy"] == pytest.approx(want.whole_entropy, rel=1e-5, abs=1e-6), parameters
        assert got["entropy_kept"] == pytest.approx(want.entropy, rel=1e-5, abs=1e-6), parameters
    assert wrong <= drawn_in_all * 1e-5, f"{wrong} of {drawn_in_all}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("vocab", [7, 257, 4097, 32_000])
@pytest.mark.parametrize("kind", ["normal", "flat", "ties", "masked"])
def test_every_dtype(kind, vocab, dtype):
    row = row_of(kind, vocab).to(dtype)
    wide = row if dtype == torch.float64 else row.float()
    for parameters in PARAMS:
        values = check(parameters)
        want, tokens = expected(wide, values, range(12))
        got = native(row[None], values, range(12))
        assert got["token"].tolist() == tokens, parameters
        assert (got["kept"] == want.count).all()


def test_float64_that_float32_cannot_hold():
    row = torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    row[17] = row[4000] = row.max() + 1e-12
    row[17] -= 1e-13
    for parameters in PARAMS:
        _, tokens = expected(row, check(parameters), range(50))
        assert native(row[None], check(parameters), range(50))["token"].tolist() == tokens
    assert native(row[None], check({"temperature": 0}), [0])["token"][0] == 4000


EDITED = [
    {"logit_bias": {0: 5.0, 1: -3.0, 300: 0.25}},
    {"logit_bias": {7: 1e30}, "top_p": 0.9},
    {"logit_bias": {token: 0.1 * token for token in range(0, 400, 3)}, "top_k": 40},
    {"banned_ids": [0, 1, 2, 400], "top_p": 0.8},
    {"banned_ids": list(range(0, 400, 2)), "min_p": 0.01},
    {"allowed_ids": [5, 6, 7, 399], "logit_bias": {6: 2.0, 8: 9.0}},
    {"temperature": 0, "logit_bias": {3: 100.0}},
    {"logit_bias": dict.fromkeys(range(200), -20.0), "temperature": 3.0},
]


@pytest.mark.parametrize("parameters", EDITED)
@pytest.mark.parametrize("vocab", [401, 5000, 40_000])
def test_edits_and_masks(vocab, parameters):
    row = row_of("normal", vocab)[None].expand(40, vocab)
    words = torch.randint(-(2**31), 2**31, (40, -(-vocab // 32)), generator=torch.Generator().manual_seed(2))
    words |= 1 << 5  # keep something that the edits keep too
    values = [check({**parameters, "seed": 3, "step": step}) for step in range(40)]
    for mask in (None, words.to(torch.int32)):
        got = sample(DenseRows(row, mask), values, backend=pick("cpu"))
        want = sample(DenseRows(row, mask), values, backend=pick("reference"))
        assert [answer.tokens for answer in got] == [answer.tokens for answer in want]
        assert [answer.kept for answer in got] == [answer.kept for answer in want]
        assert [answer.logprobs[0] for answer in got] == pytest.approx(
            [a.logprobs[0] for a in want], rel=1e-5, abs=1e-6
        )


def columns(result: Answers):
    return [result[name].tobytes() for name in ("status", "token", "logprob", "entropy", "kept", "kept_mass")]


@pytest.fixture
def batch():
    logits = torch.stack([row_of(kind, 2001) for kind in ("normal", "flat", "ties", "masked", "offset", "outliers")])
    logits = logits.repeat(43, 1)[:256]
    values = [check({**PARAMS[row % len(PARAMS)], "step": row}) for row in range(256)]
    bias = [{row: 1.5, row + 7: -2.0} if row % 5 == 0 else {} for row in range(256)]
    return hot_batch(logits, range(256), values, range(256), [None] * 256, bias), logits, values, bias


@pytest.fixture
def restored():
    threads, isa = cpu.threads(), cpu.isa()
    yield
    cpu.set_threads(threads)
    cpu.use_isa(isa)


def test_the_same_bits_for_every_thread_count_isa_and_batch(batch, restored):
    whole, logits, values, bias = batch
    want = columns(cpu.sample_hot(whole))
    for isa in cpu.isas():
        cpu.use_isa(isa)
        for threads in (1, 2, 8):
            cpu.set_threads(threads)
            assert columns(cpu.sample_hot(whole)) == want, (isa, threads)
    for row in (0, 5, 100, 255):
        alone = cpu.sample_hot(
            hot_batch(logits[row : row + 1], [0], values[row : row + 1], [row], [None], bias[row : row + 1])
        )
        assert alone["token"][0] == cpu.sample_hot(whole)["token"][row]
        assert alone["logprob"][0] == cpu.sample_hot(whole)["logprob"][row]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_half_and_double_have_the_bits_of_float(dtype):
    row = row_of("normal", 9001).to(torch.bfloat16 if dtype == torch.bfloat16 else torch.float16).to(dtype)
    for parameters in PARAMS:
        assert columns(native(row[None], check(parameters), range(8))) == columns(
            native(row.float()[None], check(parameters), range(8))
        )


@pytest.mark.parametrize(
    "view", [lambda x: x[:, ::2], lambda x: x.T.contiguous().T, lambda x: x[:, 3:], lambda x: x[::2]]
)
def test_strides(view):
    logits = torch.randn(6, 5003, generator=torch.Generator().manual_seed(4)) * 3
    strided = view(logits)
    values = [check({"seed": row, "top_p": 0.9}) for row in range(len(strided))]
    got = sample(DenseRows(strided), values, backend=pick("cpu"))
    assert got == sample(DenseRows(strided.contiguous()), values, backend=pick("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("vocab", [1, 255, 256, 257, 1000])
@pytest.mark.parametrize("bad", [float("nan"), -float("nan"), float("inf")])
def test_bad_rows_are_seen_anywhere(vocab, bad, dtype):
    places = sorted({0, vocab // 2, vocab - 1})
    logits = torch.randn(len(places), vocab).to(dtype)
    for row, place in enumerate(places):
        logits[row, place] = bad
    mask = torch.zeros(len(places), -(-vocab // 32), dtype=torch.int32)  # even where nothing is allowed
    for rows in (DenseRows(logits), DenseRows(logits, mask)):
        faults = sample(rows, check({}), backend=pick("cpu"))
        assert faults == sample(rows, check({}), backend=pick("reference"))
        assert [fault.code for fault in faults] == ["non_finite"] * len(places)
    _, place, *_ = cpu.softmax(logits, [1.0] * len(places), False, None)
    assert place.tolist() == places


def test_all_masked_rows():
    logits = torch.tensor([[-torch.inf] * 300, [0.0] * 300, [0.0] * 300])
    values = [
        check({}),
        check({"banned_ids": list(range(300))}),
        check({"logit_bias": dict.fromkeys(range(300), "-inf")}),
    ]
    got = sample(DenseRows(logits), values, backend=pick("cpu"))
    assert got == sample(DenseRows(logits), values, backend=pick("reference"))
    assert all(isinstance(fault, RowFault) and fault.code == "all_masked" for fault in got)


def test_nothing_is_written_to(batch):
    whole, logits, *_ = batch
    before = logits.clone()
    cpu.sample_hot(whole)
    assert torch.equal(before, logits)


def test_zero_rows():
    assert sample(DenseRows(torch.zeros(0, 5)), check({}), backend=pick("cpu")) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("vocab", [1, 257, 32_000])
def test_softmax_equals_the_portable_one(vocab, kind, dtype):
    logits = torch.stack([row_of(name, vocab).to(dtype) for name in ("normal", "masked", "ties")])
    logits[1, vocab // 2] = float("nan")
    rows, hot = DenseRows(logits), [0.7, 1.0, 1e-4]
    got, want = softmax(rows, hot, kind, pick("cpu")), softmax(rows, hot, kind, pick("torch"))
    assert got.faults == want.faults
    torch.testing.assert_close(got.log_z, want.log_z, rtol=1e-12, atol=1e-12, equal_nan=True)
    torch.testing.assert_close(got.entropy, want.entropy, rtol=1e-9, atol=1e-12, equal_nan=True)
    if kind == "logsumexp":
        assert got.values is None
    else:
        torch.testing.assert_close(got.values, want.values, rtol=1e-6, atol=1e-12, equal_nan=True)


def test_the_head_form_agrees_with_the_compiled_rows():
    row = row_of("peaked", 20_000).double()
    order = np.lexsort((np.arange(len(row)), -row.numpy()))[:512].copy()
    head = HeadRows(
        ids=torch.from_numpy(order)[None],
        logits=row[order][None],
        log_z=torch.logsumexp(row, 0)[None],
        vocab_size=len(row),
    )
    for step in range(200):
        values = check({"seed": 5, "step": step, "top_p": 0.95})
        [thin], [dense] = sample(head, values), sample(DenseRows(row[None]), values, backend=pick("cpu"))
        assert (thin.tokens, thin.kept) == (dense.tokens, dense.kept)


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_environment_forces_isa_and_threads():
    told = run(
        "from logitd_kernels.select import cpu; print(cpu.isa(), cpu.threads())",
        LOGITD_KERNELS_ISA="portable",
        LOGITD_KERNELS_THREADS="3",
    )
    assert told == "portable 3"


def test_without_the_native_module_torch_serves_and_says_why():
    code = (
        "import sys; sys.modules['logitd_kernels._native'] = None\n"
        "from logitd_kernels import available, pick\n"
        "print(pick('auto').name, '|', pick('auto').reason, '|', available()['cpu'])"
    )
    name, reason, missing = run(code).split(" | ")
    assert name == "torch"
    assert "no compiled kernels" in reason
    assert "no compiled kernels" in missing


def test_auto_takes_the_compiled_kernels():
    assert available()["cpu"] is None
    assert pick("auto").name == "cpu"
    assert pick("auto").describe()["isa"] in cpu.isas()


@pytest.mark.parametrize("bad", [0, -1, 5000])
def test_thread_counts_are_checked(bad):
    with pytest.raises(ValueError, match="threads"):
        cpu.set_threads(bad)
    with pytest.raises(ValueError, match="does not run"):
        cpu.use_isa("sse9")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("vocab", [257, 32_000, 262_144])
def test_scratch_memory_is_bounded_and_reused(vocab, dtype):
    """At most 8 bytes a token and 64 KiB for a thread, whatever is asked of a row; 20 more for each biased token."""
    mask = torch.full((1, -(-vocab // 32)), -1, dtype=torch.int32)
    rows = [row_of(kind, vocab).to(dtype)[None] for kind in ("flat", "ties", "equal", "normal")]
    rows += [(rows[0].double() + 1e-12).to(dtype)]

    def work():
        for _ in range(2):
            for row in rows:
                for parameters in (*PARAMS, {"logit_bias": {str(token): 1.0 for token in range(200)}, "top_p": 0.999}):
                    sample(DenseRows(row, mask), check(parameters), backend=pick("cpu"))
            held.append(cpu.scratch_bytes())

    held = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    first, second = held
    assert 0 < first == second <= 8 * vocab + 65536 + 20 * 200
