"""Model sample through tritonclient: every form of a tensor, parameters of the request and of each row."""

import asyncio
import gzip
import json
import math
import zlib

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from infer_calls import LENGTH, ROWS, ask, entry, header, post, tensor
from tritonclient.utils import InferenceServerException
from wire import head_of, post_tensors, unpacked

OUTPUTS = ["TOKEN", "LOGPROB", "ENTROPY", "ENTROPY_KEPT", "KEPT_MASS", "KEPT", "SEED", "STATUS"]
PARAMS = {"temperature": 0.8, "top_k": 40, "top_p": 0.93, "min_p": 0.01, "seed": 11, "stream": 3, "step": 7}


def sampled_by_v1(url, tensors, params, **fields):
    answer = post_tensors(
        url, "/v1/sample", tensors, {"params": params, **fields}, accept="application/vnd.safetensors"
    )
    assert answer.status_code == 200, answer.text
    return unpacked(answer)[0]


def assert_same(result, tensors, names=OUTPUTS):
    for name in names:
        array = result.as_numpy(name)
        expected = tensors[name.lower()]
        assert array.dtype == expected.dtype, name
        assert array.tobytes() == expected.tobytes(), name
        assert array.shape == (expected if expected.ndim == 2 else expected[:, None]).shape, name


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_binary_rows_give_the_bits_of_v1(client, service_url, dtype):
    rows = ROWS.astype(dtype)
    result = ask(client, "sample", {"LOGITS": rows}, OUTPUTS, **PARAMS)
    assert_same(result, sampled_by_v1(service_url, {"logits": rows}, PARAMS))
    assert result.as_numpy("STATUS").tolist() == [[0]] * len(ROWS)


@pytest.mark.parametrize("binary", [True, False])
def test_json_and_binary_are_the_same_numbers(client, service_url, binary):
    result = ask(client, "sample", {"LOGITS": ROWS}, OUTPUTS, binary, **PARAMS)
    assert_same(result, sampled_by_v1(service_url, {"logits": ROWS}, PARAMS))


def test_every_output_comes_when_none_is_named(client, service_url):
    result = ask(client, "sample", {"LOGITS": ROWS}, **PARAMS)
    assert [output["name"] for output in result.get_response()["outputs"]] == OUTPUTS
    assert_same(result, sampled_by_v1(service_url, {"logits": ROWS}, PARAMS))


def test_json_outputs_have_no_parameters_and_flat_data(client):
    result = ask(client, "sample", {"LOGITS": ROWS}, ["TOKEN"], binary=False, seed=1)
    [output] = result.get_response()["outputs"]
    assert set(output) == {"name", "datatype", "shape", "data"}
    assert all(isinstance(token, int) for token in output["data"])


def test_outputs_come_in_the_order_asked_for_some_as_json(client):
    wanted = [
        triton.InferRequestedOutput("SEED", binary_data=True),
        triton.InferRequestedOutput("TOKEN", binary_data=False),
        triton.InferRequestedOutput("LOGPROB", binary_data=True),
    ]
    result = client.infer("sample", [tensor("LOGITS", ROWS)], outputs=wanted, parameters={"seed": 2**64 - 1})
    assert [output["name"] for output in result.get_response()["outputs"]] == ["SEED", "TOKEN", "LOGPROB"]
    assert result.as_numpy("SEED").tolist() == [[2**64 - 1]] * len(ROWS)
    assert result.as_numpy("LOGPROB").shape == result.as_numpy("TOKEN").shape == (len(ROWS), 1)


@pytest.mark.parametrize("column", [True, False])
def test_inputs_set_the_parameters_of_each_row(client, service_url, column):
    each = {
        "TEMPERATURE": np.array([0, 0.5, 1, 1.5, 2], np.float32),
        "TOP_K": np.array([0, 1, 5, 20, -1], np.int32),
        "TOP_P": np.array([1, 0.5, 0.75, 0.875, 0.25], np.float64),
        "MIN_P": np.array([0, 0.25, 0.125, 0, 0], np.float32),
        "SEED": np.array([1, 2, 2**64 - 1, 4, 5], np.uint64),
        "STREAM": np.array([0, 1, 2, 3, 2**32 - 1], np.uint32),
        "STEP": np.array([9, 8, 7, 6, 5], np.int64),
    }
    params = [{name.lower(): array[row].item() for name, array in each.items()} for row in range(len(ROWS))]
    shaped = {name: array[:, None] if column else array for name, array in each.items()}
    result = ask(client, "sample", {"LOGITS": ROWS, **shaped}, OUTPUTS)
    assert_same(result, sampled_by_v1(service_url, {"logits": ROWS}, params))


def test_mask_and_edits(client, service_url):
    mask = np.full((len(ROWS), 4), -1, np.int32)
    mask[2] = [0b1010, 0, 0, 0]
    edits = {"banned_ids": "[3, 4]", "logit_bias": '{"5": 2.5}', "seed": 4}
    result = ask(client, "sample", {"LOGITS": ROWS, "MASK": mask}, OUTPUTS, **edits)
    params = {"banned_ids": [3, 4], "logit_bias": {"5": 2.5}, "seed": 4}
    assert_same(result, sampled_by_v1(service_url, {"logits": ROWS, "mask": mask}, params))
    unsigned = ask(client, "sample", {"LOGITS": ROWS, "MASK": mask.view(np.uint32)}, OUTPUTS, **edits)
    assert unsigned.as_numpy("TOKEN").tolist() == result.as_numpy("TOKEN").tolist()
    assert result.as_numpy("TOKEN")[2, 0] == 1


def test_head_form(client, service_url):
    head = head_of(ROWS, 40)
    expected = sampled_by_v1(service_url, head, PARAMS, vocab_size=ROWS.shape[1])
    arrays = {name.upper(): array for name, array in head.items()}
    arrays["HEAD_FINITE_COUNT"] = arrays["HEAD_FINITE_COUNT"][:, None]
    assert_same(ask(client, "sample", arrays, OUTPUTS, vocab_size=ROWS.shape[1], **PARAMS), expected)


def test_more_draws_and_logprobs_are_outputs_of_their_own(client, service_url):
    extra = ["TOKENS", "TOKENS_LOGPROB", "LOGPROB_RAW", "TOP_TOKENS", "TOP_LOGPROBS"]
    result = ask(client, "sample", {"LOGITS": ROWS}, extra, n=3, logprobs=4, seed=2)
    expected = sampled_by_v1(service_url, {"logits": ROWS}, {"n": 3, "seed": 2}, logprobs=4)
    assert_same(result, expected, extra)
    with pytest.raises(InferenceServerException, match="TOKENS"):
        ask(client, "sample", {"LOGITS": ROWS}, ["TOKENS"])


@pytest.mark.parametrize("binary", [True, False])
def test_no_rows(client, binary):
    result = ask(client, "sample", {"LOGITS": np.empty((0, 97), np.float32)}, OUTPUTS, binary=binary)
    for name in OUTPUTS:
        assert result.as_numpy(name).shape == (0, 1)


def test_bad_rows_fail_alone(client):
    rows = ROWS.copy()
    rows[1, 5] = np.nan
    rows[3] = -np.inf
    result = ask(client, "sample", {"LOGITS": rows}, OUTPUTS, seed=1)
    assert result.as_numpy("STATUS")[:, 0].tolist() == [0, 1, 0, 2, 0]
    assert (result.as_numpy("TOKEN")[:, 0] == -1).tolist() == [False, True, False, True, False]
    assert np.isnan(result.as_numpy("LOGPROB")[[1, 3]]).all()
    with pytest.raises(InferenceServerException, match="strict"):
        ask(client, "sample", {"LOGITS": rows}, strict=True)


@pytest.mark.parametrize("binary", [True, False])
def test_a_request_of_bad_rows_alone_is_answered(client, binary):
    result = ask(client, "sample", {"LOGITS": np.full((2, 5), np.nan, np.float32)}, OUTPUTS, binary=binary)
    assert result.as_numpy("TOKEN").tolist() == [[-1], [-1]]
    entropy = result.as_numpy("ENTROPY")
    assert np.isnan(entropy).all() if binary else (entropy == np.finfo(np.float32).min).all()


def test_infinities_in_json_are_read_and_never_written(client, service_url):
    rows = ROWS.copy()
    rows[:, 10:] = -np.inf
    result = ask(client, "sample", {"LOGITS": rows}, OUTPUTS, binary=False, seed=6)
    assert_same(result, sampled_by_v1(service_url, {"logits": rows}, {"seed": 6}))
    bad = post(service_url, header(entry(shape=[1, 2], data=[math.nan, math.inf])), length=False)
    answer = json.loads(bad.content, parse_constant=lambda word: pytest.fail(word))
    data = {output["name"]: output["data"] for output in answer["outputs"]}
    assert data["LOGPROB"] == [np.finfo(np.float32).min]
    assert data["STATUS"] == [1]


def test_the_id_is_repeated(client, service_url):
    assert client.infer("sample", [tensor("LOGITS", ROWS)], request_id="r 1").get_response()["id"] == "r 1"
    head = header(entry(shape=ROWS.shape), id="")
    assert "id" not in post(service_url, head, ROWS.tobytes()).json()


@pytest.mark.parametrize("model", ["sample.basic", "sample.greedy"])
def test_models_without_optional_inputs(client, model):
    result = ask(client, model, {"LOGITS": ROWS}, ["TOKEN"])
    if model == "sample.greedy":
        assert result.as_numpy("TOKEN")[:, 0].tolist() == ROWS.argmax(1).tolist()
        with pytest.raises(InferenceServerException, match="temperature"):
            ask(client, model, {"LOGITS": ROWS}, temperature=0.5)
    with pytest.raises(InferenceServerException, match="TOP_K"):
        ask(client, model, {"LOGITS": ROWS, "TOP_K": np.full(len(ROWS), 2, np.int32)})


def test_the_whole_body_as_one_row(service_url):
    response = post(service_url, b"", ROWS[0].tobytes(), "sample.greedy", length=0)
    size = int(response.headers[LENGTH])
    assert np.frombuffer(response.content[size:], np.int64)[0] == ROWS[0].argmax()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_both_ways(client, encoding):
    rows = np.tile(ROWS, (60, 1))
    plain = client.infer("sample", [tensor("LOGITS", rows)], parameters={"seed": 5})
    packed = client.infer(
        "sample",
        [tensor("LOGITS", rows)],
        parameters={"seed": 5},
        request_compression_algorithm=encoding,
        response_compression_algorithm=encoding,
    )
    assert packed.as_numpy("TOKEN").tobytes() == plain.as_numpy("TOKEN").tobytes()


def test_answers_are_compressed_when_it_is_liked_and_worth_it(service_url):
    head, data = header(entry(shape=(300, 97))), np.tile(ROWS, (60, 1)).tobytes()
    accepted = {"gzip": "gzip", "deflate": "deflate", "gzip;q=0.2, deflate;q=0.7": "deflate", "gzip;q=0": None}
    for accept, encoding in {**accepted, "identity, gzip;q=0.5": None, "br": None}.items():
        response = post(service_url, head, data, **{"accept-encoding": accept})
        assert response.headers.get("content-encoding") == encoding, accept
        assert len(response.json()["outputs"][0]["data"]) == 300
    small = post(service_url, header(entry(outputs=["TOKEN"])), ROWS[0, :3].tobytes(), **{"accept-encoding": "gzip"})
    assert "content-encoding" not in small.headers


def test_the_asynchronous_client(service_url):
    async def run():
        async with triton_aio.InferenceServerClient(service_url.removeprefix("http://")) as client:
            assert await client.is_model_ready("sample")
            inputs = [tensor("LOGITS", ROWS)]
            packed = {"request_compression_algorithm": "gzip", "response_compression_algorithm": "deflate"}
            asked = [client.infer("sample", inputs, request_id=str(k), parameters={"seed": 9}) for k in range(8)]
            return await asyncio.gather(*asked, client.infer("sample", inputs, parameters={"seed": 9}, **packed))

    results = asyncio.run(run())
    assert [result.get_response().get("id") for result in results] == [*map(str, range(8)), None]
    assert len({result.as_numpy("TOKEN").tobytes() for result in results}) == 1


def test_requests_of_the_asynchronous_thread_pool(service_url):
    with triton.InferenceServerClient(service_url.removeprefix("http://"), concurrency=4) as client:
        asked = [client.async_infer("sample.greedy", [tensor("LOGITS", ROWS)]) for _ in range(12)]
        assert all(one.get_result().as_numpy("TOKEN")[:, 0].tolist() == ROWS.argmax(1).tolist() for one in asked)


def test_a_body_written_by_the_client_library_alone(service_url):
    body, size = triton.InferenceServerClient.generate_request_body([tensor("LOGITS", ROWS)])
    for sent, encoding in ((body, "identity"), (gzip.compress(body), "gzip"), (zlib.compress(body), "deflate")):
        answer = post(service_url, sent, length=size, model="sample.greedy", **{"content-encoding": encoding})
        length = int(answer.headers[LENGTH])
        result = triton.InferenceServerClient.parse_response_body(answer.content, header_length=length)
        assert result.as_numpy("TOKEN")[:, 0].tolist() == ROWS.argmax(1).tolist()


def test_a_timeout_of_the_protocol_is_microseconds(client):
    with pytest.raises(InferenceServerException) as late:
        client.infer("sample", [tensor("LOGITS", np.tile(ROWS, (200, 40)))], timeout=1)
    assert late.value.status() == "504"
    assert client.infer("sample", [tensor("LOGITS", ROWS)], timeout=20_000_000, priority=1).as_numpy("TOKEN").size
