"""The head form: selection against a full sort, log Z against scipy, and answers against those of whole rows."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from logitd import Client, Head, InvalidRequest
from logitd.client.arrays import rows_of, widened
from logitd.client.compact import MAX_TEMPERATURES, compact, largest

INF = np.inf
VOCAB = 1000


def sorted_ids(row, size):
    """The definition: sort all of it, logit descending, token id ascending."""
    return np.lexsort((np.arange(len(row)), -row.astype(np.float64)))[:size]


def make_rows(kind, vocab, dtype=np.float32):
    normal = np.random.default_rng(7).normal(size=(3, vocab))
    made = {
        "normal": normal * 3,
        "tied": np.round(normal),
        "flat": np.zeros((3, vocab)),
        "masked": np.where(normal > 0.5, np.round(normal, 1), -INF),
    }
    return made[kind].astype(dtype)


@pytest.fixture(scope="module")
def client(service_url):
    with Client(service_url) as client:
        yield client


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("size", [1, 2, 50, VOCAB - 1, VOCAB])
@pytest.mark.parametrize("kind", ["normal", "tied", "flat", "masked"])
def test_head_is_the_front_of_the_total_order(kind, size, dtype):
    rows = make_rows(kind, VOCAB, dtype)
    head = compact(rows_of(rows), size)
    for index, row in enumerate(rows.astype(np.float64)):
        expected = sorted_ids(row, size)
        assert head.ids[index].tolist() == expected.tolist()
        assert head.logits[index].tolist() == row[expected].tolist()  # widening lost nothing
        assert head.finite_count[index] == np.isfinite(row).sum()


@given(
    row=st.lists(st.sampled_from([-INF, -2.0, -0.0, 0.0, 1e-45, 1.0, 3.0e38]), min_size=1, max_size=40),
    share=st.floats(0, 1),
)
def test_any_row_of_few_values(row, share):
    size = max(1, round(share * len(row)))
    values = np.array(row, np.float32)
    assert largest(values, size).tolist() == sorted_ids(values, size).tolist()


@pytest.mark.parametrize("bad", [np.nan, INF])
@pytest.mark.parametrize("size", [1, 3, 6])
def test_a_bad_logit_comes_first(bad, size):
    row = np.array([5.0, -INF, 1.0, bad, 2.0, bad], np.float32)
    assert largest(row, size).tolist() == [3, 5, 0, 4, 2, 1][:size]


def test_bad_rows_have_log_z_zero_and_leave_the_others_alone():
    good = np.array([1.0, 2.0, 3.0, -INF], np.float32)
    bad = [np.where(np.arange(4) == 1, fault, good) for fault in (np.nan, INF)]
    head = compact(rows_of(np.stack([bad[0], good, bad[1], np.full(4, -INF, np.float32)])), 2, [0.5])
    assert head.log_z[[0, 2, 3]].tolist() == [[0, 0]] * 3
    assert head.log_z[1] == pytest.approx([logsumexp([1, 2, 3]), logsumexp([2, 4, 6])], rel=1e-14)
    assert head.finite_count[[1, 3]].tolist() == [3, 0]
    assert head.ids[3].tolist() == [0, 1]
    assert head.logits[3].tolist() == [-INF, -INF]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("vocab", [VOCAB, 40_001])
def test_log_z_at_every_temperature(vocab, offset, dtype):
    rows = make_rows("masked", vocab, dtype) + dtype(offset)
    temperatures = [0.05, 0.7, 1.0, 20.0]
    head = compact(rows_of(rows), 10, temperatures)
    assert head.temperatures == (1.0, 0.05, 0.7, 20.0)
    for place, temperature in enumerate(head.temperatures):
        exact = logsumexp(rows.astype(np.float64) / temperature, axis=1)
        assert head.log_z[:, place] == pytest.approx(exact, rel=1e-13)
    assert head.log_z.dtype == np.float64


def test_a_row_beyond_float32_range_of_differences():
    row = np.array([[1.7e308, -1.7e308, 1.7e308]])
    head = compact(rows_of(row), 2)
    assert head.ids.tolist() == [[0, 2]]
    assert head.log_z.tolist() == [[1.7e308]]


def test_temperatures_are_distinct_and_few():
    rows = rows_of(make_rows("normal", 20))
    assert compact(rows, 3, [0.7, 1.0, 0.7]).temperatures == (1.0, 0.7)
    most = [0.1 * (i + 2) for i in range(MAX_TEMPERATURES)]
    assert compact(rows, 3, most).temperatures == (1.0, *most)
    assert compact(rows, 3, [*most, 5.0]).temperatures == (1.0,)


def test_a_temperature_at_which_log_z_overflows_is_left_out():
    head = compact(rows_of(make_rows("normal", 20)), 3, [1e-320, 0.5])
    assert head.temperatures == (1.0, 0.5)
    assert head.log_z.shape == (3, 2)


def test_bfloat16_bits_widen_exactly():
    values = np.array([1.5, -INF, 3.0e38, -0.0], ml_dtypes.bfloat16)
    assert widened(values.view(np.uint16), "BF16").tolist() == values.astype(np.float32).tolist()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1.7, "top_k": 40},
        {"min_p": 0.05},
        {"temperature": 0.05},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["normal", "tied", "masked"])
def test_the_service_answers_as_for_whole_rows(client, kind, params):
    rows = make_rows(kind, VOCAB)
    each = [{**params, "seed": seed} for seed in range(3)]
    whole = client.sample(rows, params=each, logprobs=3)
    head = client.sample(rows, params=each, logprobs=3, compact=600)
    assert head.tokens.tolist() == whole.tokens.tolist()
    assert all(row.exact for row in head.rows)
    assert head.kept.tolist() == whole.kept.tolist()
    for name in ("logprob", "entropy", "entropy_kept", "kept_mass", "logprob_raw"):
        known = np.isfinite(getattr(head, name))  # the entropy of a heavy tail is not
        assert known.all() or name.startswith("entropy")
        assert getattr(head, name)[known] == pytest.approx(getattr(whole, name)[known], abs=1e-3), name


def test_bad_rows_fail_alone(client):
    rows = make_rows("normal", VOCAB)[[0, 1, 2, 0, 1]]
    rows[1, 77], rows[2, 5], rows[3] = np.nan, INF, -INF
    answer = client.sample(rows, temperature=0.7, top_k=20, seed=3, compact=50)
    assert [row.error and row.error.code for row in answer.rows] == [
        None,
        "non_finite",
        "non_finite",
        "all_masked",
        None,
    ]
    whole = client.sample(rows[[0, 4]], temperature=0.7, top_k=20, seed=3)
    assert answer.tokens[[0, 4]].tolist() == whole.tokens.tolist()


def test_a_row_that_its_head_cannot_settle(client):
    flat, peaked = make_rows("flat", VOCAB)[0], make_rows("normal", VOCAB)[0] * 9
    answer = client.sample(np.stack([flat, peaked]), seed=0, compact=10)
    assert answer.rows[0].error.code == "head_too_short"
    assert answer.rows[1].error is None
    guess = client.sample(np.stack([flat, peaked]), seed=0, compact=10, allow_inexact=True)
    assert [row.exact for row in guess.rows] == [False, True]


@pytest.mark.parametrize("size", [VOCAB, VOCAB + 1])
def test_a_head_of_everything_is_sent_as_whole_rows(client, size):
    row = client.sample(make_rows("normal", VOCAB)[0], trace=True, compact=size).rows[0]
    assert row.trace is not None  # which a head form cannot have


@pytest.mark.parametrize("size", [0, -1, True, 2.0])
def test_compact_must_be_a_count(client, size):
    with pytest.raises(ValueError, match="compact must be at least 1"):
        client.sample(np.zeros(4, np.float32), compact=size)


def test_a_head_of_ones_own(client):
    row = make_rows("normal", VOCAB)[0]
    top = torch.topk(torch.from_numpy(row), 30)
    log_z = torch.logsumexp(torch.from_numpy(row), 0)
    head = Head(top.indices[None], top.values[None], log_z[None], VOCAB)
    answer = client.sample(head, top_k=10, seed=5)
    assert answer.tokens.tolist() == client.sample(row, top_k=10, seed=5).tokens.tolist()
    with pytest.raises(ValueError, match="whole rows"):
        client.sample(head, compact=5)


def test_a_head_that_contradicts_itself_is_refused(client):
    head = Head(np.array([[1, 0]]), np.array([[1.0, 2.0]]), np.array([5.0]), VOCAB)
    with pytest.raises(InvalidRequest, match="total order"):
        client.sample(head)


def test_a_mask_goes_with_the_head(client):
    row = make_rows("normal", 64)[0]
    best = int(row.argmax())
    mask = np.full(2, -1, np.int32)
    mask[best // 32] ^= np.array(1 << best % 32, np.uint32).astype(np.int32)
    answer = client.sample(row, mask=mask, temperature=0, compact=10)
    assert answer.tokens[0] == sorted_ids(row, 2)[1]
