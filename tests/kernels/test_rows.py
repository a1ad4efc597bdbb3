"""What is refused, by which name, and what is a fault of one row alone."""

import math

import pytest
import torch
from rows_of import BACKENDS, FLOATS, INF, bitmask, row_of, threads

import logitd_kernels as K
from logitd_kernels.errors import DtypeError, ParameterError, ShapeError

both = pytest.mark.parametrize("backend", BACKENDS)
NAN = math.nan
HUGE, HUGER = 10**400, 10**5000  # beyond float64; beyond the digits that Python prints


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


# ---- Tensors ----


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool, torch.uint8, torch.complex64])
def test_logits_must_be_floats(dtype):
    with pytest.raises(DtypeError, match="float32, float16, bfloat16, float64") as caught:
        K.DenseRows(torch.zeros(2, 5, dtype=dtype))
    assert caught.value.field == "logits"


def test_tensors_must_be_on_the_cpu():
    for logits, mask, field in (
        (torch.zeros(2, 5, device="meta"), None, "logits"),
        (torch.zeros(2, 5), torch.zeros(2, 1, dtype=torch.int32, device="meta"), "mask"),
    ):
        with pytest.raises(DtypeError, match="on the CPU, got one on meta") as caught:
            K.DenseRows(logits, mask)
        assert caught.value.field == field


@pytest.mark.parametrize("shape", [(), (5,), (1, 2, 5), (2, 0)])
def test_logits_must_be_rows_of_something(shape):
    with pytest.raises(ShapeError) as caught:
        K.DenseRows(torch.zeros(shape))
    assert caught.value.field == "logits"
    assert str(list(shape)) in caught.value.message


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(0, 5), (0, 0), (1, 1), (2, 33)])
def test_rows_know_their_number_and_size(shape, dtype):
    rows = K.DenseRows(torch.zeros(shape, dtype=FLOATS[dtype]))
    assert (len(rows), rows.vocab_size) == shape


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8, torch.bool, torch.float32])
def test_a_mask_must_be_int32(dtype):
    with pytest.raises(DtypeError, match="int32") as caught:
        K.DenseRows(torch.zeros(2, 33), torch.zeros(2, 2, dtype=dtype))
    assert caught.value.field == "mask"


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 3), (1, 2), (3, 2), (2, 33), (2, 2, 1), ()])
def test_a_mask_must_have_a_bit_for_every_logit(shape):
    with pytest.raises(ShapeError, match=r"\[2, 2\]") as caught:
        K.DenseRows(torch.zeros(2, 33), torch.zeros(shape, dtype=torch.int32))
    assert caught.value.field == "mask"


@pytest.mark.parametrize(("size", "words"), [(1, 1), (31, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_a_mask_has_as_many_words_as_it_needs(size, words):
    K.DenseRows(torch.zeros(1, size), torch.full((1, words), -1, dtype=torch.int32))
    for wrong in (words - 1, words + 1):
        with pytest.raises(ShapeError):
            K.DenseRows(torch.zeros(1, size), torch.full((1, wrong), -1, dtype=torch.int32))


@both
def test_tensors_that_require_grad_are_only_read(backend):
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)).requires_grad_()
    params = K.check({"seed": 1, "n": 5, "logit_bias": {0: 1.0}, "banned_ids": [1]})
    chosen = BACKENDS[backend]
    answers = K.sample(K.DenseRows(logits), params, backend=chosen, logprobs=3)
    assert answers == K.sample(K.DenseRows(logits.detach()), params, backend=chosen, logprobs=3)
    told = K.softmax(K.DenseRows(logits), [1.0] * 3)
    assert torch.allclose(told.values, torch.softmax(logits.detach(), 1))
    assert not told.values.requires_grad
    assert logits.grad is None


# ---- Bad rows ----

BAD_ROWS = {
    "nan": ([1, NAN, 2], "non_finite", "nan", "logit 1 is NaN"),  # 14
    "only nan": ([NAN] * 3, "non_finite", "nan", "logit 0 is NaN"),  # 5
    "+inf": ([0, 1, INF], "non_finite", "posinf", "logit 2 is +inf"),
    "+inf before nan": ([INF, NAN, 0], "non_finite", "nan", "logit 0 is +inf"),
    "nan among -inf": ([-INF, -INF, NAN], "non_finite", "nan", "logit 2 is NaN"),
    "+inf among -inf": ([-INF, INF, -INF], "non_finite", "posinf", "logit 1 is +inf"),
    "only -inf": ([-INF] * 3, "all_masked", "all_neginf", "every logit is -inf"),  # 8
}


@both
@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0}, {"top_k": 1}, {"logit_bias": {0: 1.0}}, {"banned_ids": [2]}]
)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_tells_what_is_wrong_and_where(name, dtype, params, backend):
    logits, code, kind, detail = BAD_ROWS[name]
    rows = K.DenseRows(torch.tensor([[0, 0, 0], logits], dtype=FLOATS[dtype]))
    good, fault = K.sample(rows, K.check(params), backend=BACKENDS[backend])
    assert good.kept >= 1
    assert (fault.row, fault.code, fault.kind) == (1, code, kind)
    assert fault.detail.startswith(detail)


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_of_a_softmax_is_nan_and_a_fault(name):
    logits, code, kind, detail = BAD_ROWS[name]
    told = K.softmax(K.DenseRows(torch.tensor([[0, 0, 0], logits, [0, 0, 0]])), [1.0] * 3)
    (fault,) = told.faults
    assert (fault.row, fault.code, fault.kind) == (1, code, kind)
    assert fault.detail.startswith(detail)
    for numbers in (told.values, told.log_z, told.entropy):
        assert torch.isnan(numbers[1]).all()
        assert torch.isfinite(numbers[[0, 2]]).all()


@both
@pytest.mark.parametrize("size", [60, 5000])
@pytest.mark.parametrize("place", [0, 31, 63])
@pytest.mark.parametrize("name", BAD_ROWS)
def test_one_bad_row_in_64_leaves_63_answers(name, place, size, backend):
    good = torch.stack([row_of("normal", size, seed=seed) for seed in range(64)])
    bad = good.clone()
    bad[place] = torch.tensor(BAD_ROWS[name][0]).repeat(size // 3 + 1)[:size]
    params = K.check({"seed": 5, "n": 3, "top_p": 0.9})
    answers = K.sample(K.DenseRows(bad), params, backend=BACKENDS[backend])
    expected = K.sample(K.DenseRows(good), params, backend=BACKENDS[backend])
    assert isinstance(answers[place], K.RowFault)
    assert answers[place].row == place
    assert answers[:place] + answers[place + 1 :] == expected[:place] + expected[place + 1 :]


@both
def test_every_row_may_be_bad(backend):
    rows = K.DenseRows(torch.tensor([logits for logits, *_ in BAD_ROWS.values()]))
    answers = K.sample(rows, backend=BACKENDS[backend])
    assert [(answer.row, answer.code) for answer in answers] == [
        (row, code) for row, (_, code, *_) in enumerate(BAD_ROWS.values())
    ]


@both
def test_a_row_that_its_mask_empties_leaves_the_others(backend):
    mask = torch.cat([bitmask(allowed, 40) for allowed in ([3], [], range(40))])
    first, second, third = K.sample(K.DenseRows(torch.zeros(3, 40), mask), backend=BACKENDS[backend])
    assert (first.tokens, first.kept, third.kept) == ([3], 1, 40)
    assert (second.row, second.code, second.kind) == (1, "all_masked", "all_neginf")


@both
@pytest.mark.parametrize("edit", [{"banned_ids": [1]}, {"logit_bias": {1: None}}, {"allowed_ids": [0]}])
def test_an_edit_does_not_hide_a_bad_logit(edit, backend):
    rows = K.DenseRows(torch.tensor([[0.0, NAN], [0.0, INF]]))
    assert [answer.code for answer in K.sample(rows, K.check(edit), backend=BACKENDS[backend])] == ["non_finite"] * 2


@both
@pytest.mark.parametrize(("bias", "token"), [(9e299, 0), (-9e299, 1)])
def test_a_sum_beyond_float64_is_a_fault_or_the_largest_there_is(bias, token, backend):
    largest = math.copysign(torch.finfo(torch.float64).max, bias)
    rows = K.DenseRows(torch.tensor([[largest, largest / 2]], dtype=torch.float64))
    (answer,) = K.sample(rows, K.check({"seed": 1, "logit_bias": {0: bias}}), backend=BACKENDS[backend])
    if isinstance(answer, K.RowFault):
        assert answer.code == "non_finite"
    else:
        assert (answer.tokens, answer.logprobs) == ([token], [0.0])


# ---- Softmax ----


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_softmax_takes_one_temperature_a_row(count):
    with pytest.raises(ParameterError, match="3 rows") as caught:
        K.softmax(K.DenseRows(torch.zeros(3, 5)), [1.0] * count)
    assert caught.value.field == "temperature"


BAD_TEMPERATURES = {"0": 0.0, "-0": -0.0, "-1": -1.0, "nan": NAN, "inf": INF, "-inf": -INF, "10**400": HUGE}


@pytest.mark.parametrize("temperature", BAD_TEMPERATURES.values(), ids=BAD_TEMPERATURES)
def test_softmax_refuses_a_temperature_that_has_no_log_z(temperature):
    with pytest.raises(ParameterError) as caught:
        K.softmax(K.DenseRows(torch.zeros(3, 5)), [1.0, temperature, 1.0])
    assert (caught.value.field, caught.value.row) == ("temperature", 1)


@pytest.mark.parametrize("kind", ["", "Softmax", "softmin", None])
def test_softmax_refuses_an_unknown_kind(kind):
    with pytest.raises(ParameterError, match="log_softmax") as caught:
        K.softmax(K.DenseRows(torch.zeros(3, 5)), [1.0] * 3, kind)
    assert caught.value.field == "kind"
