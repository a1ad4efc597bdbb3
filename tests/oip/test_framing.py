"""Requests that contradict themselves, as raw HTTP: each is refused with what is wrong, and the service lives on."""

import gzip
import json

import numpy as np
import pytest
from infer_calls import HTTP, LENGTH, ROWS, entry, header, post, refused

from logitd.settings import Settings

DATA = ROWS[0, :3].tobytes()
GOOD = header(entry())


@pytest.fixture(autouse=True, scope="module")
def _still_serves(service_url):
    yield
    assert post(service_url, GOOD, DATA).status_code == 200


@pytest.mark.parametrize(
    "length", ["-1", "+5", "1e3", "0x10", "1.0", "", "five", "99999999999999999999", "9999999999", "٣", "1 2", "10,10"]
)
def test_a_header_length_that_is_none(service_url, length):
    text = json.dumps(GOOD).encode()
    sent = [(LENGTH, length.encode())]
    refused(HTTP.post(f"{service_url}/v2/models/sample/infer", content=text + DATA, headers=sent), 400, LENGTH)


def test_a_header_length_that_is_there_twice(service_url):
    text = json.dumps(GOOD).encode()
    sent = [(LENGTH, str(len(text))), (LENGTH, str(len(text)))]
    refused(HTTP.post(f"{service_url}/v2/models/sample/infer", content=text + DATA, headers=sent), 400, LENGTH)


@pytest.mark.parametrize(("shift", "words"), [(1, ("JSON",)), (-1, ("JSON",)), (13, ("range",)), (10**9, ("range",))])
def test_a_header_length_that_is_wrong(service_url, shift, words):
    refused(post(service_url, GOOD, DATA, length=len(json.dumps(GOOD)) + shift), 400, *words)


@pytest.mark.parametrize(
    ("head", "data", "words"),
    [
        (GOOD, DATA[:-1], ("'LOGITS'", "expecting 1 additional bytes")),
        (GOOD, b"", ("'LOGITS'", "expecting 12 additional bytes")),
        (GOOD, DATA + b"x", ("unexpected additional input data",)),
        (header(entry(data=[1.0, 2.0, 3.0])), DATA, ("unexpected additional input data",)),
        (header(entry("LOGITS"), entry("TOP_K", (1,), "INT32")), DATA, ("'TOP_K'", "expecting 4 additional bytes")),
        (b"[]", b"", ("object",)),
        (b"{", b"", ("JSON",)),
        (b"\xff\xfe", b"", ("JSON",)),
        (b"[" * 100_000, b"", ("JSON",)),
        (b'{"inputs":' + b"[" * 90_000, b"", ("JSON",)),
        ({}, b"", ("inputs",)),
        ({"inputs": []}, b"", ("inputs",)),
        ({"inputs": {}}, b"", ("inputs",)),
        ({"inputs": [3]}, b"", ("inputs[0]",)),
        ({"inputs": [{}]}, b"", ("inputs[0].name",)),
        (header(entry(name=7)), DATA, ("inputs[0].name",)),
        (header(entry(name="x" * 300)), DATA, ("inputs[0].name",)),
        (header(entry(name="LOGIT")), DATA, ("unexpected inference input 'LOGIT'",)),
        (header(entry(), entry()), DATA * 2, ("LOGITS is there twice",)),
        (header(*[entry(name=f"I{k}") for k in range(33)]), DATA * 33, ("at most 32",)),
        (header(entry(), id=5), DATA, ("id",)),
        (header(entry(), id="x" * 201), DATA, ("id",)),
    ],
)
def test_a_frame_that_does_not_hold(service_url, head, data, words):
    refused(post(service_url, head, data), 400, *words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"datatype": "FP8"}, ("inputs[0].datatype",)),
        ({"datatype": "BYTES"}, ("inputs[0].datatype",)),
        ({"datatype": None}, ("inputs[0].datatype",)),
        ({"shape": None}, ("inputs[0].shape",)),
        ({"shape": "1,3"}, ("inputs[0].shape",)),
        ({"shape": [1] * 9}, ("inputs[0].shape",)),
        ({"shape": [1, -3]}, ("invalid dimensions",)),
        ({"shape": [1.0, 3]}, ("invalid dimensions",)),
        ({"shape": [True, 3]}, ("invalid dimensions",)),
        ({"shape": [1, "3"]}, ("invalid dimensions",)),
        ({"shape": [2**63, 3]}, ("invalid dimensions",)),
        ({"shape": [2**40, 2**40]}, ("exceed maximum",)),
        ({"shape": [0, 2**62]}, ("exceed maximum",)),
        ({"shape": [2**32, 2**32 + 1]}, ("exceed maximum",)),
        ({"shape": [1, 4]}, ("takes 16 bytes, got 12",)),
        ({"parameters": {"binary_data_size": 11}}, ("takes 12 bytes, got 11",)),
        ({"parameters": {"binary_data_size": -12}}, ("binary_data_size",)),
        ({"parameters": {"binary_data_size": "12"}}, ("binary_data_size",)),
        ({"parameters": {"binary_data_size": 12.0}}, ("binary_data_size",)),
        ({"parameters": {"binary_data_size": 2**70}}, ("binary_data_size",)),
        ({"parameters": {"binary_data_size": True}}, ("binary_data_size",)),
        ({"parameters": {}}, ("has no elements",)),
        ({"parameters": []}, ("inputs[0].parameters",)),
        ({"parameters": {"binary_data_size": 12, "x": {}}}, ("inputs[0].parameters.x",)),
        ({"parameters": {"binary_data_size": 12, "triton_x": 1}}, ("triton_",)),
        ({"data": [1.0, 2.0, 3.0], "parameters": {"binary_data_size": 12}}, ("inputs[0].data", "binary_data_size")),
        (
            {"parameters": {"binary_data_size": 12, "shared_memory_region": "r", "shared_memory_byte_size": 12}},
            ("binary_data_size", "shared_memory_region"),
        ),
        ({"data": [1.0], "parameters": {"shared_memory_region": "r"}}, ("inputs[0].data", "shared_memory_region")),
        ({"parameters": {"shared_memory_region": "r"}}, ("shared_memory_byte_size", "required")),
        ({"parameters": {"shared_memory_byte_size": 12}}, ("shared_memory_region", "required")),
        ({"parameters": {"shared_memory_offset": 12}}, ("shared_memory_region", "required")),
        ({"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 11}}, ("takes 12 bytes, got 11",)),
    ],
)
def test_an_input_that_does_not_hold(service_url, fields, words):
    refused(post(service_url, header({**entry(), **fields}), DATA), 400, *words)


@pytest.mark.parametrize(
    ("datatype", "data", "words"),
    [
        ("FP32", 5, ("expected a list",)),
        ("FP32", "123", ("expected a list",)),
        ("FP32", [1, 2], ("expected 3 elements", "got 2")),
        ("FP32", [1, 2, 3, 4], ("expected 3 elements", "got 4")),
        ("FP32", [1, 2, "3"], ("element 2",)),
        ("FP32", [1, None, 3], ("element 1",)),
        ("FP32", [True, 2, 3], ("element 0",)),
        ("FP32", [[1, 2], 3], ("mixed",)),
        ("FP32", [[[[[[[[[1, 2, 3]]]]]]]]], ("nested",)),
        ("FP16", [1, 2, 3], ("FP16", "binary")),
        ("BF16", [1, 2, 3], ("BF16", "binary")),
        ("INT32", [1, 2.5, 3], ("element 1",)),
        ("UINT8", [1, 2, 256], ("beyond UINT8",)),
        ("UINT64", [1, 2, -1], ("beyond UINT64",)),
        ("BOOL", [1, 0, 1], ("element 0",)),
    ],
)
def test_json_elements_that_do_not_hold(service_url, datatype, data, words):
    head = header(entry(datatype=datatype, data=data))
    refused(post(service_url, head, length=False), 400, "inputs[0].data", *words)


@pytest.mark.parametrize("data", [[1.0, 2.0, 3.0], [[1, 2, 3]], [[1.0], [2], [3.0]]])
def test_json_elements_flat_or_nested(service_url, data):
    answer = post(service_url, header(entry(data=data)), length=False, model="sample.greedy").json()
    assert answer["outputs"][0]["data"] == [2]


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({}, ("outputs",)),
        ([3], ("outputs[0]",)),
        ([{}], ("outputs[0].name",)),
        ([{"name": "TOKENZ"}], ("unexpected inference output 'TOKENZ'",)),
        ([{"name": "TOKEN"}, {"name": "TOKEN"}], ("TOKEN is there twice",)),
        ([{"name": f"O{k}"} for k in range(10_000)], ("at most 32",)),
        ([{"name": "TOKEN", "parameters": {"classification": 3}}], ("classification",)),
        ([{"name": "TOKEN", "parameters": {"binary_data": 1}}], ("binary_data",)),
        ([{"name": "TOKEN", "parameters": {"shared_memory_region": "r"}}], ("shared_memory_byte_size",)),
        (
            [
                {
                    "name": "TOKEN",
                    "parameters": {
                        "shared_memory_region": "r",
                        "shared_memory_byte_size": 8,
                        "binary_data": True,
                    },
                }
            ],
            ("binary_data", "shared_memory_region"),
        ),
    ],
)
def test_an_output_that_does_not_hold(service_url, outputs, words):
    refused(post(service_url, header(entry(), outputs=outputs), DATA), 400, *words)


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ([], 400, ("parameters",)),
        ({"nested": {"a": 1}}, 400, ("parameters.nested",)),
        ({"listed": [1]}, 400, ("parameters.listed",)),
        ({"top_k": None}, 400, ("parameters.top_k",)),
        ({"triton_enable": True}, 400, ("triton_",)),
        ({f"p{k}": 1 for k in range(65)}, 400, ("at most 64",)),
        ({"timeout": -1}, 400, ("parameters.timeout",)),
        ({"timeout": 2**64}, 400, ("parameters.timeout",)),
        ({"timeout": "5"}, 400, ("parameters.timeout",)),
        ({"priority": 1.5}, 400, ("parameters.priority",)),
        ({"binary_data_output": "yes"}, 400, ("parameters.binary_data_output",)),
        ({"top_q": 1}, 422, ("parameters.top_q", "top_p")),
        ({"trace": True}, 422, ("parameters.trace",)),
        ({"params": 1}, 422, ("parameters.params",)),
        ({"top_p": 1.5}, 422, ("parameters.top_p",)),
        ({"top_k": 1.5}, 422, ("parameters.top_k",)),
        ({"seed": "x"}, 422, ("parameters.seed",)),
        ({"banned_ids": "[1"}, 422, ("parameters.banned_ids",)),
        ({"banned_ids": "[7]"}, 422, ("parameters.banned_ids",)),
        ({"logprobs": -1}, 422, ("parameters.logprobs",)),
        ({"vocab_size": 4}, 422, ("parameters.vocab_size",)),
    ],
)
def test_parameters_that_do_not_hold(service_url, parameters, status, words):
    refused(post(service_url, header(entry(), parameters=parameters), DATA), status, *words)


def test_parameters_of_a_sequence_are_ignored(service_url):
    sequence = {"sequence_id": "s", "sequence_start": True, "sequence_end": False, "priority": 0, "timeout": 0}
    assert post(service_url, header(entry(), parameters=sequence), DATA).status_code == 200


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("TOP_P", np.array([0.5, 0.5], np.float32), ("TOP_P", "[1]")),
        ("TOP_P", np.array([[0.5, 0.5]], np.float32), ("TOP_P",)),
        ("TOP_P", np.array([2.0], np.float32), ("TOP_P[0]",)),
        ("TOP_P", np.array([np.nan], np.float32), ("TOP_P[0]",)),
        ("TOP_K", np.array([5.0], np.float32), ("TOP_K[0]", "integer")),
        ("STEP", np.array([-1], np.int64), ("STEP[0]",)),
        ("MASK", np.array([[1, 2]], np.int32), ("MASK",)),
    ],
)
def test_an_input_of_each_row_that_does_not_hold(service_url, name, array, words):
    types = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}
    size = {"parameters": {"binary_data_size": array.nbytes}}
    head = header(entry(), entry(name, array.shape, types[array.dtype.name], **size))
    refused(post(service_url, head, DATA + array.tobytes()), 422, *words)


def test_a_parameter_that_comes_twice(service_url):
    head = header(entry(), entry("TOP_P", (1,)), parameters={"top_p": 0.5})
    refused(post(service_url, head, DATA + np.float32(0.5).tobytes()), 422, "parameters.top_p", "TOP_P")


@pytest.mark.parametrize("shape", [(3,), (1, 1, 3), (3, 1, 1)])
def test_logits_of_another_rank(service_url, shape):
    refused(post(service_url, header(entry(shape=shape)), DATA), 422, "LOGITS")


def test_rows_without_logits(service_url):
    refused(post(service_url, header(entry(shape=(3, 0)))), 422, "LOGITS")


def test_integer_logits(service_url):
    refused(post(service_url, header(entry(datatype="INT32")), DATA), 422, "LOGITS")


@pytest.mark.parametrize(
    ("model", "data", "status"), [("sample", b"", 400), ("sample", DATA[:-1], 400), ("attention", DATA, 400)]
)
def test_a_raw_body_that_is_no_row(service_url, model, data, status):
    refused(post(service_url, b"", data, model, length=0), status)


def test_multipart_is_refused(service_url):
    files = {"inputs": ("x", json.dumps(GOOD).encode())}
    answer = HTTP.post(f"{service_url}/v2/models/sample/infer", files=files, headers={LENGTH: "10"})
    refused(answer, 400, "content-type", LENGTH)


@pytest.mark.parametrize("content_type", [None, "application/json", "application/octet-stream", "text/plain"])
def test_the_content_type_decides_nothing(service_url, content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    assert post(service_url, GOOD, DATA, **headers).status_code == 200
    assert post(service_url, header(entry(data=[1, 2, 3])), length=False, **headers).status_code == 200


def test_a_compressed_body_is_measured_decompressed(service_url):
    text = json.dumps(GOOD).encode()
    packed = gzip.compress(text + DATA)
    encoded = {"content-encoding": "gzip"}
    assert post(service_url, packed, length=len(text), **encoded).status_code == 200
    refused(post(service_url, packed, length=len(text) + 13, **encoded), 400, "range")


def test_a_json_header_beyond_its_cap(serve):
    with serve(Settings(max_json_bytes=2000)) as url:
        refused(post(url, header(entry(), id="x" * 190, more="y" * 2000), DATA), 413, "2000")
        refused(post(url, header(entry(shape=(130, 1))), bytes(520)), 422, "binary_data")
        wanted = [{"name": "TOKEN", "parameters": {"binary_data": True}}]
        assert post(url, header(entry(shape=(130, 1)), outputs=wanted), bytes(520)).status_code == 200


WHOLE = header(
    entry(),
    entry("TOP_P", (1,), data=[0.5]),
    outputs=[{"name": "TOKEN", "parameters": {"binary_data": True}}],
    id="7",
    parameters={"temperature": 0.5, "timeout": 10_000_000, "banned_ids": "[1]"},
)
HOSTILE = [None, True, -1, 0, 2**63, 2**64, 1e308, 1.5, "", "x", "\ud800", "\0", [], [[]], [None], {}, {"a": {}}]


def places(value, path=()):
    """Yield the path of everything in a header."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(value, path, by):
    if not path:
        return by
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = replaced(value[path[0]], path[1:], by)
    return changed


@pytest.mark.parametrize("hostile", HOSTILE, ids=repr)
def test_whatever_stands_anywhere_in_a_header_is_answered(service_url, hostile):
    for path in places(WHOLE):
        answer = post(service_url, replaced(WHOLE, path, hostile), DATA)
        assert answer.status_code in (200, 400, 422, 504), (path, answer.text)
        if answer.status_code != 200:
            assert isinstance(answer.json()["error"], str)


def test_a_header_cut_anywhere(service_url):
    text = json.dumps(WHOLE).encode()
    for end in range(1, len(text), 7):
        refused(post(service_url, text[:end], DATA), 400)
