"""The compiled backend counts a row's history: equal to the reference, and the same bits whatever computes it."""

import numpy as np
import pytest
import torch

from logitd_kernels import DenseRows, check, pick, sample
from logitd_kernels.sampling import hot
from logitd_kernels.sampling.order import DEFAULT
from logitd_kernels.sampling.prepared import Preparation
from logitd_kernels.select import cpu

pytestmark = pytest.mark.skipif(cpu.why_not() is not None, reason="this install has no compiled kernels")

ALL = {"repetition_penalty": 1.3, "frequency_penalty": 0.3, "presence_penalty": 0.7}
WIDE = {"frequency_scope": "both", "presence_scope": "both"}
PARAMS = [
    ALL,
    {**ALL, **WIDE, "temperature": 0.7, "top_k": 40, "top_p": 0.9},
    {"repetition_penalty": 0.6, "repetition_scope": "output", "min_p": 0.01},
    {"repetition_penalty": 5.0, "repetition_scope": "prompt", "temperature": 0},
    {"frequency_penalty": -0.2, "frequency_scope": "prompt", "top_p": 0.5},
    {"presence_penalty": 100.0, **WIDE, "temperature": 3.0},
    {"frequency_penalty": 1e-3, **WIDE, "presence_penalty": -1.0, "top_k": 3000},
    {**ALL, "logit_bias": {token: 0.31 * (token % 7) for token in range(0, 300, 3)}, "top_p": 0.99},
    {
        "presence_penalty": 2.0,
        **WIDE,
        "logit_bias": {3: "-inf", 5: 4.0},
        "banned_ids": [0, 9],
        "top_k": 7,
        "ties": "all",
    },
    {"repetition_penalty": 1.1, "allowed_ids": list(range(0, 300, 2)), "logit_bias": {2: 1.5}, "top_p": 0.8},
]
VOCABS = [300, 5000, 40_000]


def history(rows, length, vocab, seed, dtype=torch.int32):
    """Ids of which some come often, −1 anywhere among them."""
    made = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (rows, length), generator=made)
    ids = torch.where(torch.rand(ids.shape, generator=made) < 0.5, ids % 11, ids)
    return torch.where(torch.rand(ids.shape, generator=made) < 0.2, -1, ids).to(dtype)


def logits_of(rows, vocab, dtype=torch.float32, seed=0):
    return (3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))).to(dtype)


def compare(rows, parameters):
    """Both backends on some rows, each with a draw of its own."""
    values = [check({**parameters, "seed": 5, "step": step}) for step in range(len(rows))]
    got, want = (sample(rows, values, backend=pick(name)) for name in ("cpu", "reference"))
    assert [answer.tokens for answer in got] == [answer.tokens for answer in want]
    assert [answer.kept for answer in got] == [answer.kept for answer in want]
    for name in ("entropy", "entropy_kept", "kept_mass"):
        assert [getattr(answer, name) for answer in got] == pytest.approx(
            [getattr(answer, name) for answer in want], rel=1e-5, abs=1e-6
        )
    assert [answer.logprobs[0] for answer in got] == pytest.approx(
        [one.logprobs[0] for one in want], rel=1e-5, abs=1e-6
    )


@pytest.mark.parametrize("parameters", PARAMS)
@pytest.mark.parametrize("vocab", VOCABS)
def test_equals_the_reference(vocab, parameters):
    assert hot.is_hot(check(parameters), counts_history=True)
    prompt, output = history(12, 700, vocab, 1), history(12, 90, vocab, 2)
    mask = torch.randint(-(2**31), 2**31, (12, -(-vocab // 32)), generator=torch.Generator().manual_seed(3)) | 1 << 4
    for words in (None, mask.to(torch.int32)):
        compare(DenseRows(logits_of(12, vocab), words, prompt, output), parameters)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_every_dtype(ids, dtype):
    prompt, output = history(8, 300, 5000, 4, ids), history(8, 40, 5000, 5, ids)
    for parameters in PARAMS[:3]:
        compare(DenseRows(logits_of(8, 5000, dtype), None, prompt, output), parameters)
        compare(DenseRows(logits_of(8, 9999, dtype)[:, 1::2], None, prompt[:, ::2], output), parameters)


EMPTY = torch.zeros(4, 0, dtype=torch.int32)
SHAPES = {
    "none": (None, None),
    "no length": (EMPTY, EMPTY),
    "padding alone": (torch.full((4, 50), -1, dtype=torch.int32), None),
    "output alone": (None, history(4, 50, 300, 6)),
    "longer than the vocabulary": (history(4, 3000, 300, 7), history(4, 1000, 300, 8)),
    "one id 5,000 times": (torch.full((4, 5000), 17, dtype=torch.int32), None),
    "one id": (torch.tensor([[299]] * 4), torch.tensor([[0]] * 4)),
    "every id": (torch.arange(300).expand(4, 300), None),
    "shorter than what is fetched ahead": (history(4, 23, 300, 9), history(4, 24, 300, 10)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parameters", PARAMS[:7])
def test_histories_of_every_shape(parameters, shape):
    compare(DenseRows(logits_of(4, 300), None, *SHAPES[shape]), parameters)


def test_the_order_of_a_history_changes_no_token():
    prompt = history(6, 400, 5000, 11)
    shuffled = prompt[:, torch.randperm(400, generator=torch.Generator().manual_seed(12))]
    values = [check({**ALL, **WIDE, "seed": 3, "step": step, "top_p": 0.95}) for step in range(6)]
    one, other = (
        sample(DenseRows(logits_of(6, 5000), None, ids), values, backend=pick("cpu")) for ids in (prompt, shuffled)
    )
    assert [(answer.tokens, answer.kept) for answer in one] == [(answer.tokens, answer.kept) for answer in other]


@pytest.mark.parametrize(
    "parameters",
    [{**one, **WIDE} for one in (ALL, {"frequency_penalty": -0.2}, PARAMS[6], {**ALL, "repetition_penalty": 1})],
)
@pytest.mark.parametrize("bias", [None, 0.1])
def test_a_processed_logit_has_the_bits_of_the_formulas(bias, parameters):
    """A token that the history edits ties with one whose logit, in float64, is what the formulas make of it."""
    rng = np.random.default_rng(13)
    parameters = {**parameters, "top_k": 1, "ties": "all"} | ({} if bias is None else {"logit_bias": {1: bias}})
    for _ in range(60):
        row = torch.full((1, 400), -1e6, dtype=torch.float64)
        row[0, 1] = float(rng.normal())
        ids = torch.ones(1, int(rng.integers(1, 9)), dtype=torch.int32)
        for side in ((ids, None), (ids, ids)):
            values = check({**parameters, "seed": 1})
            prepared = Preparation(DenseRows(row, None, *side), pick("reference"), DEFAULT)
            processed = prepared.edits(0, values, prepared.known(0, values)).apply(row[0].clone())
            twin = row.clone()
            twin[0, 2] = processed[1]
            (answer,) = sample(DenseRows(twin, None, *side), values, backend=pick("cpu"))
            assert answer.kept == 2


@pytest.fixture
def restored():
    threads, isa = cpu.threads(), cpu.isa()
    yield
    cpu.set_threads(threads)
    cpu.use_isa(isa)


@pytest.mark.parametrize("parameters", PARAMS)
def test_the_same_bits_for_every_thread_count_isa_and_batch(parameters, restored):
    vocab = 5003
    logits, prompt, output = logits_of(20, vocab), history(20, 500, vocab, 14), history(20, 60, vocab, 15)
    rows = DenseRows(logits, None, prompt, output)
    values = [check({**parameters, "seed": 9, "step": step}) for step in range(20)]
    want = sample(rows, values, backend=pick("cpu"))
    for isa in cpu.isas():
        cpu.use_isa(isa)
        for threads in (1, 8):
            cpu.set_threads(threads)
            assert sample(rows, values, backend=pick("cpu")) == want, (isa, threads)
    for index in (0, 7, 19):
        alone = rows.part(index, index + 1)
        assert sample(alone, values[index : index + 1], backend=pick("cpu")) == want[index : index + 1]


def test_a_row_leaves_nothing_behind_for_the_next():
    """Tables that are shared by the rows of a thread, whatever becomes of a row."""
    good, prompt = logits_of(1, 500), history(1, 300, 500, 16)
    values = check({**ALL, **WIDE, "seed": 2})
    want = sample(DenseRows(good, None, prompt), values, backend=pick("cpu"))
    bad = torch.full((1, 500), float("nan"))
    nothing = torch.zeros(1, 16, dtype=torch.int32)
    for rows in (
        DenseRows(bad, None, prompt),
        DenseRows(good, nothing, prompt),
        DenseRows(good[:, :40], None, prompt % 40),
    ):
        sample(rows, values, backend=pick("cpu"))
        assert sample(DenseRows(good, None, prompt), values, backend=pick("cpu")) == want


@pytest.mark.parametrize(
    "parameters", [{"top_p": 0.42}, {"top_k": 900, "ties": "all", "top_p": 0.42}, {"min_p": 0.5}, {}]
)
def test_logits_that_an_edit_moves_beyond_float32(parameters):
    signs = torch.randn(8, 1186, generator=torch.Generator().manual_seed(19)).sign()
    compare(DenseRows(3e38 * signs, None, history(8, 600, 1186, 20)), {**parameters, "repetition_penalty": 0.33})
    compare(DenseRows(signs), {**parameters, "logit_bias": {4: 1e39, 9: 1e39, 11: 1.5e39}, "temperature": 1e38})


def test_faults_are_the_references():
    prompt = torch.tensor([[4, 7, 4]] * 4)
    logits = logits_of(4, 300, torch.float64)
    logits[0, 9] = float("nan")
    logits[1] = -torch.inf
    logits[2, 7] = logits[2, 4] = 1.7e308  # beyond float64 once it is moved up
    mask = torch.full((4, 10), -1, dtype=torch.int32)
    mask[3] = 0
    values = check({"presence_penalty": -100.0, "presence_scope": "prompt", "repetition_penalty": 0.5, "seed": 1})
    got, want = (sample(DenseRows(logits, mask, prompt), values, backend=pick(name)) for name in ("cpu", "reference"))
    assert got == want
    assert [fault.code for fault in got] == ["non_finite", "all_masked", "non_finite", "all_masked"]


def test_a_mask_with_bits_beyond_the_vocabulary():
    vocab = 301
    words = torch.randint(-(2**31), 2**31, (6, 10), generator=torch.Generator().manual_seed(17)).to(torch.int32)
    words[:, 0] |= 2
    for last in (words[:, -1] | ~((1 << vocab % 32) - 1), words[:, -1] & ((1 << vocab % 32) - 1)):
        mask = torch.cat([words[:, :-1], last[:, None]], 1)
        for parameters in ({}, {"banned_ids": list(range(3, 301, 3))}, {"allowed_ids": list(range(1, 90)), **ALL}):
            compare(DenseRows(logits_of(6, vocab), mask, history(6, 30, vocab, 18)), parameters)
            compare(DenseRows(logits_of(12, vocab)[::2], mask.T.contiguous().T), parameters)
