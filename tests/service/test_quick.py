"""The short way to a job, and through the kernels, says exactly what the general way says, or leaves it to that."""

import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logitd.api.quick import quick_job
from logitd.api.requests import sample_job
from logitd.errors import ServiceError
from logitd.plain_work import PlainWork
from logitd.settings import Settings
from logitd.wire import safetensors
from logitd.wire.message import Undecoded
from logitd.work import SampleWork
from logitd_kernels import DenseRows, RowFault, check, pick
from logitd_kernels.hot import PlainRows
from logitd_kernels.sampling.plain import PLAIN

SETTINGS = Settings(max_rows=8, max_vocab_size=100, max_draws=6)
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64}
PARAMS = {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "seed": 3, "stream": 1, "step": 2, "ties": "all"}


def body_of(header, data, pad=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 if pad is None else pad)
    return memoryview(bytearray(struct.pack("<Q", len(text)) + text + data))


def header_of(rows=2, vocab=10, dtype="F32", params=PARAMS, **more):
    entry = {"dtype": dtype, "shape": [rows, vocab], "data_offsets": [0, rows * vocab * DTYPES[dtype].itemsize]}
    return {"__metadata__": {"request": json.dumps({"params": params})}, "logits": entry, **more}


def general(body, settings=SETTINGS):
    """Return the job of the general way; None where it refuses."""
    try:
        return sample_job(Undecoded(safetensors.MEDIA_TYPE, body, (), 1 << 20)(), settings)
    except ServiceError:
        return None


def same(body, settings=SETTINGS):
    """Hold the short way against the general one; tell whether it was taken."""
    found = quick_job(body, settings)
    if found is None:
        return False
    wanted = general(body, settings)
    assert wanted is not None, "the general way refuses it"
    logits = found.rows.tensor()
    assert logits.dtype == wanted.rows.logits.dtype
    assert torch.equal(logits.view(torch.uint8), wanted.rows.logits.view(torch.uint8))
    assert wanted.rows.mask is None
    assert [dict(one) for one in found.values] == [dict(one) for one in wanted.values]
    assert found.shared == wanted.shared
    assert found.fields == wanted.fields.model_copy(update={"params": {}})
    return True


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("params", [{}, PARAMS, {"seed": "18446744073709551615"}, {"seed": -1}, {"temperature": 0}])
def test_what_savers_write_takes_it(dtype, params):
    data = np.random.default_rng(0).bytes(20 * DTYPES[dtype].itemsize)
    assert same(body_of(header_of(dtype=dtype, params=params), data))


SENT = header_of()
OFFSETS = SENT["logits"]
LEFT = {
    "a tensor more": {**SENT, "mask": {"dtype": "I32", "shape": [0], "data_offsets": [80, 80]}},
    "no metadata": {"logits": OFFSETS},
    "a format": {**SENT, "__metadata__": {**SENT["__metadata__"], "format": "pt"}},
    "no text": {**SENT, "__metadata__": {"request": 5}},
    "metadata is a list": {**SENT, "__metadata__": ["request"]},
    "not JSON": {**SENT, "__metadata__": {"request": "{"}},
    "a list of requests": {**SENT, "__metadata__": {"request": "[]"}},
    "NaN": {**SENT, "__metadata__": {"request": '{"params": {"temperature": NaN}}'}},
    "another field": {**SENT, "__metadata__": {"request": '{"params": {}, "strict": true}'}},
    "params of each row": {**SENT, "__metadata__": {"request": '{"params": [{}, {}]}'}},
    "params is a string": {**SENT, "__metadata__": {"request": '{"params": "temperature"}'}},
    "an edit": header_of(params={"banned_ids": [1]}),
    "an empty list": header_of(params={"allowed_ids": []}),
    "several draws": header_of(params={"n": 2}),
    "one draw": header_of(params={"n": 1}),
    "unknown": header_of(params={"temprature": 1}),
    "out of bounds": header_of(params={"top_p": 1.5}),
    "a bool for a number": header_of(params={"top_k": True}),
    "three dimensions": {**SENT, "logits": {**OFFSETS, "shape": [2, 5, 2]}},
    "one dimension": {**SENT, "logits": {**OFFSETS, "shape": [20]}},
    "a bool for a dimension": {**SENT, "logits": {**OFFSETS, "shape": [True, 20]}},
    "a float for a dimension": {**SENT, "logits": {**OFFSETS, "shape": [2.0, 10]}},
    "a bool for an offset": {**SENT, "logits": {**OFFSETS, "data_offsets": [False, 80]}},
    "a gap": {**SENT, "logits": {**OFFSETS, "data_offsets": [8, 80]}},
    "fewer bytes": {**SENT, "logits": {**OFFSETS, "shape": [2, 9]}},
    "negative": {**SENT, "logits": {**OFFSETS, "shape": [-2, -10]}},
    "a number for a shape": {**SENT, "logits": {**OFFSETS, "shape": 20}},
    "another entry": {**SENT, "logits": {**OFFSETS, "more": 1}},
    "integers": {**SENT, "logits": {**OFFSETS, "dtype": "I32"}},
    "a dtype that is no text": {**SENT, "logits": {**OFFSETS, "dtype": ["F32"]}},
    "no entry": {**SENT, "logits": None},
    "a name twice": json.dumps(SENT, separators=(",", ":")).encode()[:-1] + b',"logits":{}}',
    "blanks": json.dumps(SENT).encode(),
    "no object": b"[1,2,3]",
    "no JSON": b"{",
    "nothing": b"",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_anything_else_is_left_to_the_general_way(name):
    assert quick_job(body_of(LEFT[name], bytes(80)), SETTINGS) is None


@pytest.mark.parametrize(
    ("rows", "vocab", "taken"), [(6, 10, True), (7, 10, False), (1, 100, True), (1, 101, False), (0, 10, False)]
)
def test_it_has_the_limits_of_the_general_way(rows, vocab, taken):
    body = body_of(header_of(rows, vocab), bytes(rows * vocab * 4))
    assert same(body) == taken
    assert (general(body) is not None) == (taken or rows == 0)


@pytest.mark.parametrize("pad", range(8))
def test_it_reads_no_logits_that_are_not_aligned(pad):
    header = header_of(dtype="F32")
    begin = 8 + len(json.dumps(header, separators=(",", ":"))) + pad
    assert same(body_of(header, bytes(80), pad)) == (begin % 4 == 0)


@pytest.mark.parametrize("length", range(40))
def test_a_body_that_is_cut_is_left_to_the_general_way(length):
    assert quick_job(body_of(SENT, bytes(80))[:length], SETTINGS) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 65) | st.floats() | st.sampled_from(["F32", "all", "3", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["request", "params"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(sorted(PLAIN | {"n", "logit_bias"})), JSON | st.integers(0, 3) | st.floats(0, 2)),
    st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), JSON, max_size=1),
    st.dictionaries(st.sampled_from(["__metadata__", "logits", "mask"]), JSON, max_size=1) | st.just({}),
)
def test_whatever_is_sent_it_agrees_with_the_general_way(params, entry, more):
    try:
        header = header_of(params=params)
        text = json.dumps({**header, "logits": {**header["logits"], **entry}, **more}, separators=(",", ":")).encode()
    except ValueError:  # an integer with too many digits
        return
    same(body_of(text, bytes(80)))


BACKEND = pick("cpu")
ROWS = torch.randn(6, 50, generator=torch.Generator().manual_seed(1)) * 3
ROWS[1, 7] = float("nan")
ROWS[3, 9] = float("inf")
ROWS[4] = -float("inf")


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("params", [{"seed": 5}, {**PARAMS, "seed": 1 << 63}, {"seed": 7, "temperature": 0.0}])
def test_the_kernels_answer_rows_in_a_buffer_as_they_answer_a_tensor(dtype, params):
    logits, values = ROWS.to(dtype), [check(params)] * 6
    data = bytearray(16) + bytearray(logits.view(torch.uint8).numpy().tobytes())
    plain = PlainWork(PlainRows(memoryview(data), 16, dtype, 6, 50), values)
    wanted = SampleWork(DenseRows(logits), values)
    assert plain.compute(BACKEND) == wanted.compute(BACKEND)
    assert [one.kind for one in plain.compute(BACKEND) if isinstance(one, RowFault)] == ["nan", "posinf", "all_neginf"]
    assert (plain.rows, plain.row_bytes, plain.is_light) == (wanted.rows, wanted.row_bytes, wanted.is_light)
    halves = [plain.part(0, 2), plain.part(2, 6).part(0, 1), plain.part(2, 6).part(1, 4)]
    assert [one for half in halves for one in half.compute(BACKEND)] == wanted.compute(BACKEND)


def test_rows_without_a_seed_have_one_each():
    work = PlainWork(PlainRows(memoryview(bytearray(2 * 40)), 0, torch.float32, 2, 10), [check({})] * 2)
    seeds = {answer.seed for _ in range(3) for answer in work.compute(BACKEND)}
    assert len(seeds) == 6
    assert all(0 <= seed < 1 << 53 for seed in seeds)


@pytest.mark.parametrize(
    "rows",
    [
        PlainRows(memoryview(bytearray(39)), 0, torch.float32, 1, 10),
        PlainRows(memoryview(bytearray(40)), 4, torch.float32, 1, 10),
        PlainRows(memoryview(bytearray(40)), -4, torch.float32, 1, 10),
        PlainRows(memoryview(bytearray(40)), 44, torch.float32, 1, 10),
        PlainRows(memoryview(bytearray(40)), 0, torch.float32, 1, 1 << 62),
        PlainRows(memoryview(bytearray(40)), 0, torch.float32, 1, 0),
    ],
)
def test_no_kernel_reads_beyond_a_buffer(rows):
    with pytest.raises(ValueError, match="does not hold"):
        PlainWork(rows, [check({"top_k": 0})]).compute(BACKEND)
