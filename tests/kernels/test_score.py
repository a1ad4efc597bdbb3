"""`score`: log-probabilities, ranks, entropy and gradients of given tokens, against obvious float64 versions."""

import math

import numpy as np
import pytest
import torch
from rows_of import FLOATS, INF, KINDS, bitmask, row_of, softmax64, threads
from test_golden import DISTRIBUTIONS

import logitd_kernels as K
from logitd_kernels.errors import DtypeError, ParameterError, ShapeError
from logitd_kernels.sampling.order import order_of
from logitd_kernels.score import Score, loss_of, score

BACKENDS = {name: K.pick(name) for name in ("reference", "torch", "auto")}
both = pytest.mark.parametrize("backend", BACKENDS)
NAMES = ["normal", "peaked", "ties", "equal", "mostly_masked", "high"]


def ask(row, target, params=None, backend="auto", mask=None, **options):
    """Score one target of one row [V]."""
    row = row if isinstance(row, torch.Tensor) else torch.tensor(row, dtype=torch.float64)
    rows = K.DenseRows(row[None], mask)
    [answer] = score(rows, torch.tensor([target]), [K.check(params or {})], backend=BACKENDS[backend], **options)
    return answer


def log_softmax64(row, temperature=1.0):
    wide = np.asarray(row.double() if isinstance(row, torch.Tensor) else row, np.float64)
    deltas = (wide - wide.max()) / temperature
    return deltas - math.log(math.fsum(np.exp(deltas)))


def told(answers):
    """Answers as numbers that can be compared bit by bit."""
    return [(a.target, a.logprob_raw, a.logprob, a.rank, a.entropy, a.gradient.tolist()) for a in answers]


# ---- The untouched row ----


@both
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_worked_numbers(name, backend):
    logits, temperature, probabilities, logarithms, _, entropy = DISTRIBUTIONS[name]
    logarithms = logarithms or [math.log(p) if p else -INF for p in probabilities]
    for token, logarithm in enumerate(logarithms):
        answer = ask(logits, token, {"temperature": temperature}, backend)
        assert answer.logprob == pytest.approx(logarithm, rel=1e-9, abs=1e-12)
        if temperature == 1:
            assert answer.logprob_raw == pytest.approx(logarithm, rel=1e-9, abs=1e-12)
            assert answer.entropy == pytest.approx(entropy, rel=1e-9, abs=1e-12)


@both
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("size", [5, 5000])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_says_what_its_definition_says(name, size, dtype, backend):
    row = row_of(name, size, FLOATS[dtype])
    wide = row.double().numpy()
    order = np.lexsort((np.arange(size), -wide)).tolist()
    probabilities = softmax64(row)
    kept = probabilities[probabilities > 0]
    for target in (0, size // 2, size - 1, order[0]):
        answer = ask(row, target, {}, backend)
        assert answer.target == target
        assert answer.logprob_raw == pytest.approx(log_softmax64(row)[target], rel=1e-11, abs=1e-11)
        assert answer.logprob == pytest.approx(answer.logprob_raw, rel=1e-11, abs=1e-11)
        assert answer.rank == order.index(target) + 1
        assert answer.entropy == pytest.approx(-np.sum(kept * np.log(kept)), rel=1e-9, abs=1e-9)


def test_log_probabilities_do_not_underflow():
    assert ask([0.0, -2000.0], 1).logprob_raw == -2000
    assert ask([0.0, -2000.0], 1, {"temperature": 0.5}).logprob == -4000
    assert ask([0.0, -2000.0, -3000.0], 1, {"top_k": 2}).logprob == -2000


def test_ranks_follow_the_total_order():
    assert [ask([1, 3, 3, -INF, 2, -INF], target).rank for target in range(6)] == [4, 1, 2, 5, 3, 6]


def test_a_masked_target_has_no_probability():
    answer = ask([1, -INF], 1)
    assert (answer.logprob_raw, answer.logprob, answer.rank) == (-INF, -INF, 2)


# ---- What the parameters leave ----

PARAMS = [
    {"temperature": 0.3},
    {"temperature": 0},
    {"top_k": 3},
    {"top_k": 100, "temperature": 2.0},
    {"top_p": 0.6},
    {"min_p": 0.2, "temperature": 1.5},
    {"logit_bias": {"0": 2.0, "2": "-inf"}, "top_p": 0.9},
    {"banned_ids": [0, 1]},
    {"typical_p": 0.5},
    {"top_n_sigma": 1.0},
    {"smoothing_factor": 0.3, "top_k": 20},
    {"dynatemp_range": 0.5, "epsilon_cutoff": 1e-3},
    {"xtc_probability": 1.0, "xtc_threshold": 0.01},
    {"mirostat": 2, "mirostat_tau": 2.0},
    {"adaptive_target": 0.1},
]


@both
@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize("name", ["ties", "mostly_masked"])
def test_it_is_the_log_probability_that_a_draw_reports(name, params, backend):
    row = row_of(name, 300, torch.float64)
    params, draws = {"seed": 1, **params}, 1 if "adaptive_target" in params or "mirostat" in params else 20
    drawn = K.sample(K.DenseRows(row[None]), K.check({"n": draws, **params}), backend=BACKENDS[backend])[0]
    for token, logprob in zip(drawn.tokens, drawn.logprobs, strict=True):
        assert ask(row, token, params, backend).logprob == pytest.approx(logprob, abs=1e-12)


@both
@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize("name", ["normal", "ties", "equal"])
def test_the_probabilities_of_all_tokens_sum_to_one(name, params, backend):
    row = row_of(name, 25, torch.float64)
    rows, targets = K.DenseRows(row.expand(25, -1)), torch.arange(25)
    answers = score(rows, targets, [K.check(params)] * 25, backend=BACKENDS[backend])
    masses = [math.exp(answer.logprob) for answer in answers]
    assert math.fsum(masses) == pytest.approx(1, abs=1e-12)
    kept = K.sample(rows, K.check({"seed": 1, **params}), backend=BACKENDS[backend])[0].kept
    assert sum(mass > 0 for mass in masses) == kept


@both
def test_truncation_ends_between_ties(backend):
    answers = [ask([1, 1, 1, 0], target, {"top_k": 2}, backend).logprob for target in range(4)]
    assert answers == pytest.approx([math.log(0.5), math.log(0.5), -INF, -INF])


def test_a_mask_is_an_edit_and_the_raw_row_does_not_know_it():
    answer = ask([0.0, 0.0, 0.0], 0, mask=bitmask([0, 1], 3))
    assert (answer.logprob_raw, answer.logprob) == pytest.approx((-math.log(3), -math.log(2)))
    assert ask([0.0, 0.0, 0.0], 2, mask=bitmask([0, 1], 3)).logprob == -INF


def test_chance_is_that_of_seed_zero_where_there_is_none():
    params = {"xtc_probability": 0.5, "xtc_threshold": 0.1}
    for stream in range(8):
        without, zero = ({**params, "stream": stream, **seed} for seed in ({}, {"seed": 0}))
        row = [2.0, 1.5, 1.0, -5.0]
        assert [ask(row, t, without).logprob for t in range(4)] == [ask(row, t, zero).logprob for t in range(4)]


def test_the_order_is_the_callers():
    row, params = np.log([0.1, 0.2, 0.3, 0.4]).tolist(), {"top_k": 2, "top_p": 0.5}
    assert ask(row, 2, params).logprob == -INF
    assert ask(row, 2, params, order=order_of(own=("top_p", "top_k"))).logprob == pytest.approx(math.log(3 / 7))


# ---- Gradients ----


@pytest.mark.parametrize("name", ["normal", "flat", "peaked", "ties"])
def test_the_gradient_is_that_of_finite_differences(name):
    row, target, step = row_of(name, 40, torch.float64), 7, 1e-5
    gradient = ask(row, target, gradient=True).gradient
    assert gradient.dtype == torch.float64
    for token in range(40):
        moved = [row.clone() for _ in range(2)]
        moved[0][token] += step
        moved[1][token] -= step
        up, down = (-ask(one, target).logprob_raw for one in moved)
        assert gradient[token] == pytest.approx((up - down) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_gradient_is_p_minus_y(dtype):
    row = row_of("normal", 300, FLOATS[dtype])
    gradient = ask(row, 11, gradient=True).gradient
    assert gradient.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    expected = softmax64(row) - (np.arange(300) == 11)
    assert np.abs(gradient.double().numpy() - expected).max() < (1e-14 if dtype == "float64" else 1e-7)


def test_a_certain_target_has_a_small_gradient_not_none():
    gradient = ask([60.0, 0.0], 0, gradient=True).gradient
    assert gradient.tolist() == pytest.approx([0.0, math.exp(-60)], rel=1e-9, abs=1e-25)


# ---- Rows ----


def test_rows_that_are_left_out_or_bad_do_not_touch_the_others():
    logits = torch.tensor([[0.0, 1], [math.nan, 1], [0, 1], [math.nan, 0], [0, INF], [-INF, -INF], [1, 0]])
    answers = score(K.DenseRows(logits), torch.tensor([0, 1, -1, -1, 0, 0, 1]), [K.check({})] * 7)
    assert [getattr(answer, "code", None) for answer in answers] == [
        None, "non_finite", None, None, "non_finite", "all_masked", None,
    ]  # fmt: skip
    assert [answer.row for answer in answers if isinstance(answer, K.RowFault)] == [1, 4, 5]
    assert [isinstance(answer, Score) for answer in answers] == [True, False, False, False, False, False, True]
    assert answers[2] is None
    assert answers[3] is None
    assert answers[0].logprob_raw == answers[6].logprob_raw


def test_a_row_without_a_token_left_is_bad():
    fault = ask([0.0, 1.0], 0, {"banned_ids": [0, 1]})
    assert (fault.code, fault.row) == ("all_masked", 0)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 40}], ids=str)
def test_same_bits_alone_in_a_batch_and_on_any_number_of_threads(params):
    logits = torch.stack([row_of(name, 5001, torch.float64) for name in KINDS])
    targets = torch.arange(len(logits)) * 400
    values = [K.check(params if place % 2 else {}) for place in range(len(logits))]
    whole = told(score(K.DenseRows(logits), targets, values, gradient=True))
    for count in (1, 4):
        with threads(count):
            alone = [
                score(K.DenseRows(logits[place][None]), targets[place][None], [own], gradient=True)[0]
                for place, own in enumerate(values)
            ]
        assert told(alone) == whole


def test_no_rows():
    assert score(K.DenseRows(torch.zeros(0, 5)), torch.zeros(0, dtype=torch.int64), []) == []


def test_inputs_are_never_written_to():
    logits = torch.randn(3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    params = [K.check({"banned_ids": [1], "top_k": 3})] * 3
    score(K.DenseRows(logits), torch.tensor([0, 1, 2]), params, gradient=True)
    assert torch.equal(logits, before)


# ---- What is refused ----


@pytest.mark.parametrize(
    ("targets", "error", "text"),
    [
        (torch.tensor([0.0, 1.0]), DtypeError, "targets: expected int32 or int64, got float32"),
        (torch.tensor([True, False]), DtypeError, "got bool"),
        (torch.tensor([0]), ShapeError, r"targets: expected shape \[2\], one for each row, got \[1\]"),
        (torch.tensor([[0], [1]]), ShapeError, r"got \[2, 1\]"),
        (torch.tensor([0, 3]), ParameterError, r"targets\[1\]: must be a token id in \[0, 3\), or -1 .*, got 3"),
        (torch.tensor([-2, 0]), ParameterError, r"targets\[0\]: .* got -2"),
        (torch.tensor([0, 2**62]), ParameterError, r"targets\[1\]"),
    ],
)
def test_targets_are_checked(targets, error, text):
    with pytest.raises(error, match=text):
        score(K.DenseRows(torch.zeros(2, 3)), targets, [K.check({})] * 2)


def test_parameters_are_one_mapping_a_row():
    with pytest.raises(ParameterError, match="params: expected one object for each of 2 rows, got 1"):
        score(K.DenseRows(torch.zeros(2, 3)), torch.tensor([0, 0]), [K.check({})])


def test_a_token_outside_the_vocabulary_is_named_with_its_row():
    values = [K.check({}), K.check({"banned_ids": [3]})]
    with pytest.raises(ParameterError, match="banned_ids") as caught:
        score(K.DenseRows(torch.zeros(2, 3)), torch.tensor([0, 0]), values)
    assert caught.value.row == 1


# ---- Losses ----


def test_losses():
    loss = loss_of([math.log(0.5), math.log(0.125)])
    assert (loss.cross_entropy, loss.perplexity) == pytest.approx((math.log(4), 4))
    assert loss_of([0.0]).cross_entropy == 0
    assert math.copysign(1, loss_of([0.0]).cross_entropy) == 1
    assert loss_of([-1000.0]).perplexity == INF
    assert loss_of([0.0, -INF]).cross_entropy == INF
    assert math.isnan(loss_of([]).perplexity)
