"""The client against a real service."""

import asyncio
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import entropy

import logitd
from logitd import (
    AsyncClient,
    Client,
    InvalidRequest,
    RowFailed,
)
from logitd_kernels import DenseRows
from logitd_kernels import check as check_params
from logitd_kernels import sample as sample_kernel

LOGITS = (np.random.default_rng(1).normal(size=(4, 500)) * 4).astype(np.float32)
SEEDED = {"temperature": 0.7, "top_p": 0.9, "seed": 11}


@pytest.fixture(scope="module")
def client(service_url):
    with Client(service_url) as client:
        yield client


def test_import_takes_neither_the_server_extra_nor_torch():
    heavy = ["torch", "pydantic", "fastapi", "starlette", "uvicorn", "orjson", "prometheus_client", "logitd_kernels"]
    code = f"import sys, logitd, logitd.cli; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_are_sorted_and_there():
    assert logitd.__all__ == sorted(logitd.__all__)
    assert all(hasattr(logitd, name) for name in logitd.__all__)


def test_a_row_reports_what_the_kernel_computed(client):
    answer = client.sample(LOGITS, **SEEDED, logprobs=3, trace=True, stream=2, step=9)
    values = check_params({**SEEDED, "stream": 2, "step": 9})
    expected = sample_kernel(DenseRows(torch.from_numpy(LOGITS)), values, logprobs=3, trace=True)
    for row, kernel in zip(answer.rows, expected, strict=True):
        assert (row.token, row.tokens) == (kernel.tokens[0], tuple(kernel.tokens))
        assert (row.seed, row.stream, row.step, row.exact, row.error) == (11, 2, 9, True, None)
        assert row.kept == kernel.kept
        assert row.logprob == pytest.approx(kernel.logprobs[0], rel=1e-6)
        assert row.tokens_logprob == (row.logprob,)
        assert row.entropy == pytest.approx(kernel.entropy, rel=1e-6)
        assert row.entropy_kept == pytest.approx(kernel.entropy_kept, rel=1e-6)
        assert row.kept_mass == pytest.approx(kernel.kept_mass, rel=1e-6)
        assert row.logprob_raw == pytest.approx(kernel.top.of_tokens[0], rel=1e-6)
        assert [top.token for top in row.top] == [top.token for top in kernel.top.top]
        assert [top.logprob for top in row.top] == pytest.approx([top.logprob for top in kernel.top.top], rel=1e-6)
        assert [step.transform for step in row.trace] == ["temperature", "top_p"]
        assert row.trace[1].kept == row.kept
    assert answer.backend == client.info()["backend"]["name"]
    assert answer.effective["top_p"] == 0.9
    assert set(answer.seconds) == {"read", "decode", "queue", "compute", "encode"}


def test_arrays_are_the_rows(client):
    answer = client.sample(LOGITS, **SEEDED, logprobs=1)
    assert answer.tokens.dtype == np.int64
    assert answer.tokens.tolist() == [row.token for row in answer.rows]
    for name in ("logprob", "entropy", "entropy_kept", "kept_mass", "logprob_raw"):
        column = getattr(answer, name)
        assert column.dtype == np.float32
        assert column.tolist() == [getattr(row, name) for row in answer.rows]
    assert answer.kept.tolist() == [row.kept for row in answer.rows]
    assert answer.seed.tolist() == [11] * 4
    assert answer.raise_for_rows() is answer


def test_what_was_not_asked_for_is_none(client):
    row = client.sample(LOGITS[0]).rows[0]
    assert (row.logprob_raw, row.top, row.trace) == (None, None, None)
    assert 0 <= row.seed < 2**53


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(np.float16),
        lambda x: x.astype(np.float64),
        lambda x: x.astype(">f4"),
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(ml_dtypes.bfloat16),
        lambda x: torch.from_numpy(x),
        lambda x: torch.from_numpy(x).half(),
        lambda x: torch.from_numpy(x).bfloat16(),
        lambda x: torch.from_numpy(x.T.copy()).bfloat16().T,
        lambda x: torch.nn.Parameter(torch.from_numpy(x.copy()).double()),
        lambda x: x.tolist(),
    ],
    ids=[
        "float16",
        "float64",
        "big-endian",
        "fortran",
        "bfloat16",
        "torch",
        "torch-half",
        "torch-bfloat16",
        "torch-bfloat16-strided",
        "torch-parameter",
        "list",
    ],
)
def test_any_array_gives_the_tokens_of_its_values(client, convert):
    exact = LOGITS.astype(ml_dtypes.bfloat16).astype(np.float16).astype(np.float32)  # the same in every dtype
    assert client.sample(convert(exact), **SEEDED).tokens.tolist() == client.sample(exact, **SEEDED).tokens.tolist()


def test_one_row(client):
    assert client.sample(LOGITS[0], **SEEDED).tokens.tolist() == client.sample(LOGITS, **SEEDED).tokens[:1].tolist()


@pytest.mark.parametrize(
    ("logits", "error", "message"),
    [
        (np.zeros((2, 3), np.int64), TypeError, "F32"),
        (np.zeros((2, 3), np.complex64), TypeError, "no form on the wire"),
        (np.zeros((1, 2, 3)), ValueError, r"\[rows, vocab\]"),
        (np.float32(1.0), ValueError, r"\[rows, vocab\]"),
        ([[1.0, 2.0], [3.0]], ValueError, "inhomogeneous"),
    ],
    ids=["int", "complex", "3d", "scalar", "ragged"],
)
def test_what_cannot_be_sent_is_refused_here(client, logits, error, message):
    with pytest.raises(error, match=message):
        client.sample(logits)


def test_rows_have_their_own_parameters_over_the_common_ones(client):
    answer = client.sample(
        LOGITS[:3], params=[{}, {"temperature": 0.0}, {"seed": 5, "step": 8}], temperature=2.0, seed=1
    )
    assert [(e["temperature"], e["seed"], e["step"]) for e in answer.effective] == [
        (2.0, 1, 0),
        (0.0, 1, 0),
        (2.0, 5, 8),
    ]
    assert answer.rows[1].token == LOGITS[1].argmax()
    assert client.sample(LOGITS, params={"temperature": 0.5}, temperature=2.0).effective["temperature"] == 0.5


def test_parameters_may_be_numpys_and_torchs(client):
    answer = client.sample(
        LOGITS,
        temperature=np.float32(0.5),
        top_k=np.int64(7),
        seed=np.uint64(2**64 - 1),
        n=torch.tensor(2),
        allowed_ids=np.arange(50),
        banned_ids=range(10, 20),
        logit_bias={np.int64(3): -np.inf, 4: 1},
        allow_inexact=np.bool_(False),
    )
    assert (
        answer.effective
        == client.sample(
            LOGITS,
            temperature=0.5,
            top_k=7,
            seed=str(2**64 - 1),
            n=2,
            allowed_ids=list(range(50)),
            banned_ids=list(range(10, 20)),
            logit_bias={"3": "-inf", "4": 1},
        ).effective
    )
    assert answer.rows[0].seed == 2**64 - 1
    assert answer.seed.tolist() == [2**64 - 1] * 4


def test_a_parameter_without_json_form(client):
    with pytest.raises(TypeError, match=r"params\[0\]\.seed: object"):
        client.sample(LOGITS[:1], params=[{"seed": object()}])


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"tempratur": 1.0}, "params.tempratur"),
        ({"temperature": float("nan")}, "params.temperature"),
        ({"temperature": -1}, "params.temperature"),
        ([{}, {}, {"top_p": 2.0}, {}], "params[2].top_p"),
        ([{}], "params"),
    ],
    ids=["unknown", "nan", "negative", "row", "count"],
)
def test_the_service_names_the_parameter_that_it_refuses(client, params, path):
    with pytest.raises(InvalidRequest) as refused:
        client.sample(LOGITS, params=params)
    assert refused.value.status == 422
    assert [field.path for field in refused.value.fields] == [path]
    assert path in str(refused.value)


def test_several_draws_a_row(client):
    answer = client.sample(LOGITS[:3], params=[{"n": 3}, {"n": 1}, {"n": 2}], seed=4, temperature=2.0)
    assert [len(row.tokens) for row in answer.rows] == [3, 1, 2]
    assert [len(row.tokens_logprob) for row in answer.rows] == [3, 1, 2]
    assert all(row.tokens[0] == row.token and row.tokens_logprob[0] == row.logprob for row in answer.rows)


def test_mask(client):
    words = np.zeros((4, 16), np.int32)
    words[:, 3] = 1 << 5  # token 101 alone
    assert client.sample(LOGITS, mask=words).tokens.tolist() == [101] * 4
    assert client.sample(LOGITS[0], mask=torch.from_numpy(words[0])).tokens.tolist() == [101]


def test_a_bad_row_fails_alone(client):
    rows = LOGITS.copy()
    rows[1, 7], rows[2] = np.nan, -np.inf
    answer = client.sample(rows, **SEEDED, n=2, logprobs=2, trace=True)
    assert answer.failed.tolist() == [False, True, True, False]
    assert [row.error and (row.error.code, row.error.row) for row in answer.rows] == [
        None,
        ("non_finite", 1),
        ("all_masked", 2),
        None,
    ]
    bad = answer.rows[1]
    values = (
        bad.token,
        bad.tokens,
        bad.logprob,
        bad.tokens_logprob,
        bad.entropy,
        bad.kept,
        bad.seed,
        bad.top,
        bad.trace,
    )
    assert values == (None,) * len(values)
    assert answer.tokens[[1, 2]].tolist() == [-1, -1]
    assert np.isnan(answer.logprob).tolist() == [False, True, True, False]
    assert answer.kept[1] == -1
    assert answer.tokens[[0, 3]].tolist() == client.sample(LOGITS[[0, 3]], **SEEDED).tokens.tolist()
    with pytest.raises(RowFailed, match="row 1: non_finite: ") as failed:
        answer.raise_for_rows()
    assert (failed.value.row, failed.value.code) == (1, "non_finite")


def test_strict_refuses_the_request(client):
    rows = LOGITS.copy()
    rows[1, 7] = np.nan
    with pytest.raises(InvalidRequest) as refused:
        client.sample(rows, strict=True)
    assert [field.path for field in refused.value.fields] == ["logits[1]"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize(("kind", "scipy"), [("softmax", softmax), ("log_softmax", log_softmax), ("logsumexp", None)])
def test_softmax(client, kind, scipy, dtype):
    temperatures = [0.5, 1.0, 2.0, 7.0]
    answer = client.softmax(LOGITS.astype(dtype), temperatures, kind)
    scaled = LOGITS.astype(np.float64) / np.array(temperatures)[:, None]
    assert answer.log_z == pytest.approx(logsumexp(scaled, axis=1), rel=1e-6)
    assert answer.entropy == pytest.approx(entropy(softmax(scaled, axis=1), axis=1), rel=1e-5)
    assert answer.errors == [None] * 4
    if scipy is None:
        assert answer.values is None
    else:
        assert answer.values.dtype == dtype
        assert answer.values == pytest.approx(scipy(scaled, axis=1), rel=1e-4, abs=1e-6)


def test_softmax_of_a_bad_row(client):
    rows = LOGITS.copy()
    rows[1, 7] = np.inf
    answer = client.softmax(rows, np.float32(2.0))
    assert [error and error.code for error in answer.errors] == [None, "non_finite", None, None]
    assert np.isnan(answer.log_z).tolist() == [False, True, False, False]


def test_info(client):
    assert client.info()["version"] == logitd.__version__


def test_the_async_client_is_the_same(client, service_url):
    async def everything():
        async with AsyncClient(service_url) as twin:
            samples = [twin.sample(LOGITS, **SEEDED, step=step, compact=size) for step, size in [(0, None), (1, 300)]]
            answers = await asyncio.gather(*samples)
            with pytest.raises(InvalidRequest):
                await twin.sample(LOGITS, tempratur=1)
            return answers, await twin.softmax(LOGITS[0], 2.0), await twin.info()

    answers, values, info = asyncio.run(everything())
    assert answers[0].rows == client.sample(LOGITS, **SEEDED).rows
    assert answers[1].rows == client.sample(LOGITS, **SEEDED, step=1, compact=300).rows
    assert values.values.tolist() == client.softmax(LOGITS[0], 2.0).values.tolist()
    assert info == client.info()
