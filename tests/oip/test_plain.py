"""The short way of an infer request to its job says what the general way says, or leaves the request to that."""

import json

import numpy as np
import pytest
import torch

from logitd.api.requests import sample_job
from logitd.api.v2.catalogue import MODELS
from logitd.api.v2.message import message_of
from logitd.api.v2.plain import quick_job
from logitd.settings import Settings
from logitd.wire.oip.request import parse

SETTINGS = Settings(max_rows=4, max_vocab_size=50)
ROWS = np.random.default_rng(3).normal(0, 3, (2, 6))
RAW = {
    "FP32": ROWS.astype(np.float32),
    "FP16": ROWS.astype(np.float16),
    "FP64": ROWS,
    "BF16": (ROWS.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16),
}
PARAMETERS = {"temperature": 0.7, "top_k": 3, "seed": 5, "step": 2}
MASK = {"name": "MASK", "datatype": "UINT32", "shape": [2, 1], "data": [63, 63]}
TOP_P = {"name": "TOP_P", "datatype": "FP32", "shape": [2], "data": [0.5, 0.5]}


def request(*more, parameters=PARAMETERS, binary=b"", pad=0, datatype="FP32", shape=(2, 6), **logits):
    """Return an infer request; its binary data begin so many bytes beyond a multiple of 8."""
    if binary:
        logits = {"parameters": {"binary_data_size": len(binary)}}
    inputs = [{"name": "LOGITS", "datatype": datatype, "shape": list(shape), **logits}, *more]
    text = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    text += b" " * (-len(text) % 8 + pad)
    return parse(memoryview(bytearray(text + binary)), len(text), 1 << 20)


def nowhere(place):
    raise AssertionError(f"read {place}")


def taken(asked):
    """Hold the short way against the general one; tell whether it was taken."""
    found = quick_job(asked, MODELS["sample"], nowhere, SETTINGS)
    if found is None:
        return False
    wanted = sample_job(message_of(asked, MODELS["sample"], nowhere), SETTINGS)
    logits = found.rows.tensor()
    assert logits.dtype == wanted.rows.logits.dtype
    assert torch.equal(logits.view(torch.uint8), wanted.rows.logits.view(torch.uint8))
    assert [dict(one) for one in found.values] == [dict(one) for one in wanted.values]
    assert found.fields == wanted.fields.model_copy(update={"params": {}})
    return True


@pytest.mark.parametrize("datatype", RAW)
@pytest.mark.parametrize("parameters", [{}, PARAMETERS])
def test_rows_with_plain_parameters_take_it(datatype, parameters):
    assert taken(request(datatype=datatype, binary=RAW[datatype].tobytes(), parameters=parameters))


def test_numbers_in_json_take_it():
    assert taken(request(data=ROWS.ravel().tolist()))


@pytest.mark.parametrize("pad", range(8))
@pytest.mark.parametrize("datatype", RAW)
def test_it_reads_no_logits_that_are_not_aligned(datatype, pad):
    asked = request(datatype=datatype, binary=RAW[datatype].tobytes(), pad=pad)
    assert taken(asked) == (pad % RAW[datatype].itemsize == 0)


@pytest.mark.parametrize(
    "sent",
    [
        request(MASK, data=ROWS.ravel().tolist()),
        request(TOP_P, data=ROWS.ravel().tolist()),
        request(data=ROWS.ravel().tolist(), parameters={"n": 2}),
        request(data=ROWS.ravel().tolist(), parameters={"banned_ids": "[1]"}),
        request(data=ROWS.ravel().tolist(), parameters={"logprobs": 2}),
        request(data=ROWS.ravel().tolist(), parameters={"top_p": 2}),
        request(data=[1] * 12, datatype="INT32"),
        request(data=[], shape=(0, 6)),
        request(data=[0] * 10, shape=(5, 2)),
        request(data=[0] * 51, shape=(1, 51)),
        request(data=[0] * 12, shape=(2, 2, 3)),
    ],
)
def test_what_is_anything_else_is_left_to_the_general_way(sent):
    assert not taken(sent)


def test_shared_memory_is_read_once_and_only_for_what_takes_it():
    reads = []

    def read(place):
        reads.append(place)
        return memoryview(bytearray(RAW["FP32"].tobytes()))

    def asked(parameters):
        place = {"shared_memory_region": "r", "shared_memory_byte_size": 48}
        logits = {"name": "LOGITS", "datatype": "FP32", "shape": [2, 6], "parameters": place}
        return parse(memoryview(json.dumps({"inputs": [logits], "parameters": parameters}).encode()), None, 1 << 20)

    for left in ({"n": 2}, {"top_p": 2}):
        assert quick_job(asked(left), MODELS["sample"], read, SETTINGS) is None
    assert reads == []
    job = quick_job(asked(PARAMETERS), MODELS["sample"], read, SETTINGS)
    assert job.rows.tensor().tolist() == RAW["FP32"].tolist()
    assert len(reads) == 1
