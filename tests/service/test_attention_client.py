"""Attention through the client, against a real service."""

import asyncio
import json
import math

import httpx
import ml_dtypes
import numpy as np
import pytest
import torch
from test_attention import relative_error, softmax_attention, tensors
from wire import packed

from logitd import (
    AsyncClient,
    AttentionResult,
    Client,
    HeadReport,
    InvalidRequest,
    Trial,
    UnexpectedAnswer,
)
from logitd.client.attention_answer import read_attention, read_plan
from logitd.settings import Settings
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

SMALL = tensors(40, heads=3, dim=8, batch=2)


@pytest.fixture(scope="module")
def client(service_url):
    with Client(service_url, timeout_seconds=60) as client:
        yield client


def in_torch(sent, dtype=torch.float32):
    return {name: torch.from_numpy(array).to(dtype) for name, array in sent.items()}


def test_an_answer_holds_the_output_and_a_report_on_every_head(client):
    result = client.attention(**SMALL, causal=True, tolerance=0.2)
    assert isinstance(result, AttentionResult)
    seen = np.tri(40, dtype=bool)
    assert relative_error(result.output, softmax_attention(**SMALL, seen=seen)) < 1e-6
    assert result.output.dtype == np.float32
    assert result.modes == [["exact"] * 3] * 2
    assert result.relative_error.shape == (2, 3)
    assert result.relative_error.dtype == np.float64
    head = result.heads[1][2]
    assert isinstance(head, HeadReport)
    assert (head.mode, head.why, head.over_tolerance, head.approximate_error) == ("exact", "short", False, None)
    assert head.relative_error == result.relative_error[1, 2] < 1e-5
    assert (head.state_bytes, head.kv_bytes) == (None, 40 * 16 * 4)
    assert 0 < head.entropy < math.log(40)
    assert (result.effective["causal"], result.effective["tolerance"]) == (True, 0.2)
    assert result.cost == 1
    assert result.threshold == client.info()["attention"]["threshold"]
    assert set(result.attention_seconds) == {"check", "choose", "attend", "audit", "recompute"}
    assert set(result.seconds) == {"read", "decode", "queue", "compute", "encode"}


def exact_in_every_dtype(sent):
    return {name: array.astype(ml_dtypes.bfloat16).astype(np.float32) for name, array in sent.items()}


@pytest.mark.parametrize(
    ("convert", "dtype", "close"),
    [
        (lambda x: x.astype(np.float16), np.float16, 1e-3),
        (lambda x: x.astype(np.float64), np.float64, 1e-6),
        (lambda x: x.astype(ml_dtypes.bfloat16), np.float32, 1e-2),
        (lambda x: x.astype(">f4"), np.float32, 1e-6),
        (lambda x: np.asfortranarray(x), np.float32, 1e-6),
        (lambda x: x[..., ::-1].copy()[..., ::-1], np.float32, 1e-6),
        (lambda x: x.tolist(), np.float64, 1e-6),
        (lambda x: torch.from_numpy(x), np.float32, 1e-6),
        (lambda x: torch.from_numpy(x).half(), np.float16, 1e-3),
        (lambda x: torch.from_numpy(x).bfloat16(), np.float32, 1e-2),
        (lambda x: torch.from_numpy(x.transpose(0, 2, 1, 3).copy()).bfloat16().transpose(1, 2), np.float32, 1e-2),
        (lambda x: torch.nn.Parameter(torch.from_numpy(x.copy()).double()), np.float64, 1e-6),
    ],
    ids=[
        "float16",
        "float64",
        "bfloat16",
        "big-endian",
        "fortran",
        "strided",
        "list",
        "torch",
        "torch-half",
        "torch-bfloat16",
        "torch-bfloat16-strided",
        "torch-parameter",
    ],
)
def test_any_array_is_attended_as_its_values(client, convert, dtype, close):
    sent = exact_in_every_dtype(SMALL)
    output = client.attention(**{name: convert(array) for name, array in sent.items()}).output
    assert output.dtype == dtype
    assert relative_error(output.astype(float), softmax_attention(**sent)) < close
    torch.from_numpy(output)  # warns of what cannot be written to


def test_without_a_batch(client):
    result = client.attention(*(SMALL[name][1] for name in "qkv"), mask=np.tri(40, dtype=bool), lengths=[30])
    whole = client.attention(
        **{name: array[1:] for name, array in SMALL.items()}, mask=np.tri(40, dtype=bool), lengths=np.array([30])
    )
    assert result.output.shape == (3, 40, 8)
    assert np.array_equal(result.output, whole.output[0])
    assert not result.output[:, 30:].any()
    assert result.heads == whole.heads
    turned = client.attention(*(SMALL[name][0].transpose(1, 0, 2) for name in "qkv"), layout="BLHD")
    assert relative_error(turned.output.transpose(1, 0, 2), softmax_attention(**SMALL)[0]) < 1e-6


def test_masks_lengths_and_sinks_are_sent(client):
    bias = np.random.default_rng(1).standard_normal((3, 40, 40)).astype(np.float32)
    got = client.attention(**in_torch(SMALL), mask=torch.from_numpy(bias), sink_logits=[0.0, 1.0, 2.0]).output
    scores = np.einsum("bhid,bhjd->bhij", SMALL["q"], SMALL["k"]).astype(float) / math.sqrt(8) + bias
    sinks = np.exp(np.arange(3.0))[:, None, None]
    weights = np.exp(scores) / (np.exp(scores).sum(-1, keepdims=True) + sinks)
    assert relative_error(got, weights @ SMALL["v"].astype(float)) < 1e-6


def test_a_head_that_was_given_up_says_so(client):
    sent = tensors(1500, heads=1, dim=16, spread=2.5, seed=1)
    strict = client.attention(**sent, mode="moment", tolerance=0.1)
    assert (strict.modes, strict.heads[0][0].why) == ([["exact"]], "given_up")
    assert strict.heads[0][0].approximate_error > 0.1
    lax = client.attention(**sent, mode="moment", tolerance=0.1, policy="best_effort")
    assert lax.heads[0][0].over_tolerance
    assert lax.relative_error[0, 0] == pytest.approx(strict.heads[0][0].approximate_error)
    assert lax.heads[0][0].state_bytes < lax.heads[0][0].kv_bytes


def test_empty_tensors(client):
    nothing = np.zeros((0, 2, 3, 4), np.float32)
    result = client.attention(nothing, nothing, nothing)
    assert (result.output.shape, result.heads, result.relative_error.shape) == ((0, 2, 3, 4), [], (0, 0))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"q": np.zeros((1, 2, 3, 4), np.int64)}, TypeError, "q must be one of F16, BF16, F32, F64, got I64"),
        ({"k": np.zeros((1, 2, 3, 4), np.complex64)}, TypeError, "no form on the wire"),
        ({"v": np.zeros((3, 4))}, ValueError, r"v must have shape \[batch, heads, length, dim\], got \[3, 4\]"),
        ({"v": SMALL["v"][0]}, ValueError, r"a batch in all of q, k and v or in none, .* v \[3, 40, 8\]"),
        ({"q": [[[[1.0], [1.0, 2.0]]]]}, ValueError, "inhomogeneous"),
        ({"scale": object()}, TypeError, "request.scale: object has no form in JSON"),
    ],
    ids=["int", "complex", "2d", "some-batched", "ragged", "field"],
)
def test_what_cannot_be_sent_is_refused_here(client, changed, error, message):
    with pytest.raises(error, match=message):
        client.attention(**{**SMALL, **changed})


@pytest.mark.parametrize("call", ["attention", "attention_compare"])
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tolerance": float("nan")}, "tolerance"),
        ({"nonsense": 1}, "nonsense"),
        ({"lengths": [41, 1]}, "lengths"),
        ({"v": np.full((2, 3, 40, 8), np.nan, np.float32)}, "v"),
    ],
    ids=["nan", "unknown", "lengths", "not-finite"],
)
def test_the_service_names_what_it_refuses(client, call, fields, path):
    with pytest.raises(InvalidRequest) as refused:
        getattr(client, call)(**{**SMALL, **fields})
    assert refused.value.status == 422
    assert [field.path for field in refused.value.fields] == [path]


def test_numpys_and_torchs_numbers_are_fields_too(client):
    result = client.attention(**SMALL, scale=np.float32(0.5), window=torch.tensor(7), causal=np.bool_(True))
    assert (result.effective["scale"], result.effective["window"], result.effective["causal"]) == (0.5, 7, True)


def test_a_comparison_is_typed_and_tells_its_progress_in_order(client):
    sent, told = tensors(300, dim=8, spread=0.6), []
    found = client.attention_compare(**sent, methods=["moment", "elu", "trig"], feature_dims=[16], progress=told.append)
    assert [(trial.method, trial.feature_dim) for trial in found.trials] == [
        ("exact", None),
        ("moment", None),
        ("elu", None),
        ("trig", 16),
    ]
    assert [(event["done"], event["total"], event["method"]) for event in told] == [
        (place, 4, trial.method) for place, trial in enumerate(found.trials, 1)
    ]
    exact, moment = found.trials[:2]
    assert isinstance(moment, Trial)
    assert (exact.cost, exact.state_bytes) == (1.0, None)
    assert moment.relative_error.shape == (1, 2)
    assert moment.relative_error[0, 1] == moment.heads[0][1].relative_error
    assert exact.heads[0][0].rank_correlation == pytest.approx(1)
    advice = found.heads[0][1]
    assert 0 < advice.predicted_error < 1
    assert advice.recommendation.mode in ("moment", "elu", "trig", "exact")
    assert advice.recommendation.reason
    assert (found.kv_bytes, found.tolerance) == (300 * 16 * 4, 0.1)
    assert found.seconds["compute"] > 0
    assert [trial.method for trial in client.attention_compare(**sent, methods=[]).trials] == ["exact"]


def test_what_progress_raises_ends_the_comparison(serve):
    class Enough(Exception):
        pass

    def stop(progress):
        raise Enough

    sent = tensors(2000, heads=4, dim=32)
    with serve(Settings(attention_queue=1)) as url, Client(url, retries=30) as client:
        with pytest.raises(Enough):
            client.attention_compare(**sent, progress=stop)
        assert client.attention(**SMALL).cost == 1  # tried again until the place is free


def test_a_plan_goes_back_as_it_came(client):
    layers = {
        0: tuple(tensors(1200, dim=16, spread=0.4).values()),
        5: in_torch(tensors(1200, dim=16, spread=3.0, seed=1)),
    }
    plan = client.attention_plan(layers, tolerance=0.1)
    assert (plan["version"], plan["tolerance"], set(plan["layers"])) == (1, 0.1, {"0", "5"})
    assert plan["layers"]["5"]["modes"] == ["exact"] * 2
    assert "exact" not in plan["layers"]["0"]["modes"]
    result = client.attention(*layers[0], plan=plan, layer=0, policy="best_effort")
    assert result.modes == [plan["layers"]["0"]["modes"]]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"q": SMALL["q"], "k": SMALL["k"]}, "layer 3 must have q, k and v, got q, k"),
        ({}, "layer 3 must have q, k and v, got nothing"),
        ((SMALL["q"], SMALL["k"]), "layer 3 must have q, k and v, got 2 tensors"),
        ((*SMALL.values(), SMALL["v"]), "got 4 tensors"),
        ((SMALL["q"], SMALL["k"], SMALL["v"][0]), r"3\.v \[3, 40, 8\]"),
    ],
)
def test_layers_that_cannot_be_sent(client, own, message):
    with pytest.raises(ValueError, match=message):
        client.attention_plan({3: own})


def test_a_plan_without_layers_is_refused_by_the_service(client):
    with pytest.raises(InvalidRequest, match="layers"):
        client.attention_plan({})


def test_the_async_client_is_the_same(client, service_url):
    layers, told = {1: SMALL}, []

    async def everything():
        async with AsyncClient(service_url) as twin:
            with pytest.raises(InvalidRequest):
                await twin.attention(**SMALL, mode="magic")
            with pytest.raises(InvalidRequest, match="methods"):
                await twin.attention_compare(**SMALL, methods=["magic"])
            return (
                await twin.attention(*SMALL.values(), causal=True),
                await twin.attention_compare(**SMALL, methods=["elu"], progress=told.append),
                await twin.attention_plan(layers),
            )

    result, comparison, plan = asyncio.run(everything())
    expected = client.attention(**SMALL, causal=True)
    assert np.array_equal(result.output, expected.output)
    assert result.heads == expected.heads
    assert comparison.heads == client.attention_compare(**SMALL, methods=["elu"]).heads
    assert [event["done"] for event in told] == [1, 2]
    assert plan["layers"] == client.attention_plan(layers)["layers"]


@pytest.mark.parametrize("cut", [0, 7, 8, 100, -1])
def test_an_answer_cut_short_is_unexpected(service_url, cut):
    headers = dict.fromkeys(("accept", "content-type"), safetensors.MEDIA_TYPE)
    body = httpx.post(f"{service_url}/v1/attention", content=packed(SMALL), headers=headers).content
    assert read_attention(body).output.shape == (2, 3, 40, 8)
    with pytest.raises(UnexpectedAnswer, match="attention answer"):
        read_attention(body[:cut])


def answered(output, **changed):
    """Return an answer for one head, as the service writes it."""
    head = dict.fromkeys(HeadReport.__dataclass_fields__, 0) | {"mode": "exact", "why": "short", **changed}
    rest = {"cost": 1.0, "threshold": 1, "attention_seconds": {}, "seconds": {}, "effective": {}}
    response = json.dumps({"heads": [[head]], **rest})
    return b"".join(safetensors.encode({"output": Tensor.of(output)}, {"response": response}))


def test_an_error_without_bound_is_infinite():
    output = np.zeros((1, 1, 2, 4), np.float32)
    [[head]] = read_attention(answered(output, relative_error=None, approximate_error=None)).heads
    assert (head.relative_error, head.approximate_error) == (math.inf, None)
    [[head]] = read_attention(answered(output, why="given_up", approximate_error=None, news=1)).heads
    assert head.approximate_error == math.inf


@pytest.mark.parametrize("shape", [(2, 4), (2, 1, 2, 4)])
def test_an_output_of_another_shape_is_unexpected(shape):
    with pytest.raises(UnexpectedAnswer, match="output has shape"):
        read_attention(answered(np.zeros(shape, np.float32)))


def test_a_plan_that_is_no_object():
    with pytest.raises(UnexpectedAnswer, match="plan answer"):
        read_plan(b"[1]")
