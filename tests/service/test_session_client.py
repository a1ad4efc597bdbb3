"""Streaming sessions through the client, against a real service; lost answers are made by the transport."""

import asyncio
import concurrent.futures
import time

import httpx
import ml_dtypes
import numpy as np
import pytest
import torch
from test_sessions import D, H, causal, sequence

from logitd import (
    AsyncClient,
    AsyncSession,
    Client,
    ConnectionFailed,
    InvalidRequest,
    LogitdError,
    Overloaded,
    Session,
    SessionGone,
    TimedOut,
    UnexpectedAnswer,
)
from logitd.client.answer import error_of
from logitd.client.session_answer import read_export, read_opened, read_query, read_shown, read_step
from logitd.settings import Settings

PATH = "/v1/attention/sessions"


@pytest.fixture(scope="module")
def client(service_url):
    with Client(service_url) as client:
        yield client


def opened(client, **fields):
    return client.attention_session(**{"heads": H, "dim": D, "method": "exact", **fields})


class Losing(httpx.HTTPTransport):
    """The real service behind something that loses answers: each fault comes in place of one that was given."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = list(faults)
        self.bodies = []

    def handle_request(self, request):
        response = super().handle_request(request)
        if not request.url.path.endswith("/append"):
            return response
        self.bodies.append(request.read())
        if not self.faults:
            return response
        response.read()
        fault = self.faults.pop(0)
        if isinstance(fault, Exception):
            raise fault
        return fault


class AsyncLosing(httpx.AsyncHTTPTransport):
    def __init__(self, *faults):
        super().__init__()
        self.faults = list(faults)

    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        if not self.faults or not request.url.path.endswith("/append"):
            return response
        await response.aread()
        raise self.faults.pop(0)


def test_pieces_are_causal_attention(client):
    q, k, v = sequence(30)
    with opened(client) as session:
        assert isinstance(session, Session)
        assert (session.step, session.tokens, session.state_bytes) == (0, 0, 0)
        outputs = [session.append(k[:, at], v[:, at], q[:, at]) for at in (slice(0, 12), slice(12, 13), slice(13, 30))]
        np.testing.assert_allclose(np.concatenate(outputs, 1), causal(q, k, v), atol=1e-5)
        assert {output.dtype for output in outputs} == {np.dtype(np.float32)}
        assert (session.step, session.tokens) == (3, 30)
        np.testing.assert_allclose(session.query(q[:, -1:]), outputs[-1][:, -1:], atol=1e-6)
        assert session.append(k, v) is None
        told = session.info()
        assert (told["id"], told["method"]) == (session.id, "exact")
        assert (told["step"], told["tokens"], told["state_bytes"]) == (4, 60, session.state_bytes)
        assert session.state_bytes >= 60 * H * 2 * D * 4


def test_fields_are_the_services(client):
    with opened(client, kv_heads=1, value_dim=3, scale=0.5) as session:
        _, k, v = sequence(4)
        assert session.append(k[:1], v[:1, :, :3], k).shape == (H, 4, 3)
    with opened(client, method="elu") as session:
        assert session.info()["method"] == "elu"
    with pytest.raises(InvalidRequest, match="nonsense"):
        opened(client, nonsense=np.float32(1))
    with pytest.raises(InvalidRequest, match="method"):
        opened(client, method="magic")
    with pytest.raises(TypeError, match="seed"):
        opened(client, seed=object())


def exact_in_every_dtype(array):
    return array.astype(ml_dtypes.bfloat16).astype(np.float16).astype(np.float32)


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(np.float16),
        lambda x: x.astype(np.float64),
        lambda x: x.astype(ml_dtypes.bfloat16),
        lambda x: x.tolist(),
        lambda x: np.asfortranarray(x),
        lambda x: torch.from_numpy(x),
        lambda x: torch.from_numpy(x).bfloat16(),
        lambda x: torch.from_numpy(x.swapaxes(0, 1).copy()).swapaxes(0, 1),
    ],
    ids=["float16", "float64", "bfloat16", "list", "fortran", "torch", "torch-bfloat16", "torch-strided"],
)
def test_any_array_is_appended_as_its_values(client, convert):
    q, k, v = map(exact_in_every_dtype, sequence(5))
    with opened(client) as session, opened(client) as other:
        expected = other.append(k, v, q)
        output = session.append(convert(k), convert(v), convert(q))
        assert np.array_equal(output, expected)
        assert np.array_equal(session.query(convert(q)), other.query(q))
        torch.from_numpy(output)  # warns of what cannot be written to
        one = session.append(convert(k[:, 0]), convert(v[:, 0]), convert(q[:, 0]))
        assert np.array_equal(one, other.append(k[:, :1], v[:, :1], q[:, :1])[:, 0])
        assert np.array_equal(session.query(convert(q[:, 0])), other.query(q[:, :1])[:, 0])
        assert (session.tokens, session.append(k[:, 0], v[:, 0])) == (6, None)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda q, k, v: (k, v, q[:, 0]), ValueError, r"one token in all of them, got k \[2, 4, 8\], .*q \[2, 8\]"),
        (lambda q, k, v: (k[0, 0], v[0, 0], None), ValueError, r"k \[8\]"),
        (lambda q, k, v: (k[None], v[None], q[None]), ValueError, r"\[1, 2, 4, 8\]"),
        (lambda q, k, v: (k.astype(int), v, q), TypeError, "k must be one of F16"),
        (lambda q, k, v: (k, v[:, :2], None), InvalidRequest, "v: expected 4 tokens"),
        (lambda q, k, v: (k, v * np.nan, None), InvalidRequest, "v: "),
    ],
    ids=["ranks", "rank-1", "rank-4", "integers", "tokens", "nan"],
)
def test_a_refused_append_changes_nothing(client, change, error, message):
    q, k, v = sequence(4)
    with opened(client) as session:
        with pytest.raises(error, match=message):
            session.append(*change(q, k, v))
        assert (session.step, session.info()["step"]) == (0, 0)
        session.append(k, v)
        assert (session.step, session.tokens) == (1, 4)


@pytest.mark.parametrize("method", ["exact", "elu"])
def test_an_append_whose_answer_is_lost_is_taken_in_once(service_url, method):
    q, k, v = sequence(6)
    waits = []
    transport = Losing(httpx.ReadError("reset"), httpx.RemoteProtocolError("cut"), httpx.Response(502))
    with (
        Client(service_url, transport=transport, sleep=waits.append) as client,
        opened(client, method=method) as session,
        opened(client, method=method) as other,
    ):
        output = session.append(k, v, q)
        assert (len(waits), len(transport.bodies), len(set(transport.bodies))) == (3, 4, 1)
        assert np.array_equal(output, other.append(k, v, q))
        assert (session.step, session.tokens) == (1, 6)
        assert (session.info()["step"], session.info()["tokens"]) == (1, 6)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (httpx.ReadTimeout("slow"), TimedOut),
        (httpx.ReadError("reset"), ConnectionFailed),
        (httpx.Response(503), Overloaded),
        (httpx.Response(408), InvalidRequest),
        (httpx.Response(200, content=b"<html>"), UnexpectedAnswer),
    ],
    ids=["timeout", "reset", "503", "408", "unreadable"],
)
def test_what_may_have_been_taken_in_is_repeated_before_anything_else(service_url, fault, error):
    q, k, v = sequence(3)
    transport = Losing(fault)
    with Client(service_url, transport=transport, retries=0) as client, opened(client) as session:
        with pytest.raises(error):
            session.append(k, v, q)
        for other in ((k, v), (k, v, v)):
            with pytest.raises(ValueError, match="repeat it"):
                session.append(*other)
        assert len(transport.bodies) == 1
        with pytest.raises(ValueError, match="one token"):
            session.append(k, v[0])
        session.query(q)
        np.testing.assert_allclose(session.append(k, v, q), causal(q, k, v), atol=1e-5)
        session.append(k, v)
        assert (session.step, session.tokens, session.info()["tokens"]) == (2, 6, 6)


def test_threads_share_a_session(client):
    _, k, v = sequence(2)
    with opened(client, method="elu") as session:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: session.append(k, v), range(12)))
        assert (session.step, session.tokens, session.info()["tokens"]) == (12, 24, 24)


def test_an_export_continues_elsewhere(serve, client, tmp_path):
    q, k, v = sequence(20)
    with opened(client, method="elu") as session:
        session.append(k[:, :15], v[:, :15])
        data = session.export()
        expected = session.append(k[:, 15:], v[:, 15:], q[:, 15:])
    with serve(Settings(attention_threshold=512)) as url, Client(url) as other:
        with other.import_session(data) as continued:
            assert (continued.step, continued.tokens) == (1, 15)
            assert continued.id != session.id
            assert np.array_equal(continued.append(k[:, 15:], v[:, 15:], q[:, 15:]), expected)
            assert continued.info()["step"] == 2
        changed = bytearray(data)
        changed[-1] ^= 1
        with pytest.raises(InvalidRequest, match="sha256"):
            other.import_session(bytes(changed))
        with pytest.raises(InvalidRequest) as refused:
            other.import_session(b"nonsense")
        assert refused.value.status == 400


def every_call(session, k):
    return (session.info, session.export, lambda: session.query(k), lambda: session.append(k, k))


def test_leaving_the_block_deletes_the_session(client):
    _, k, _ = sequence(2)
    with opened(client) as session:
        session.append(k, k)
    for call in every_call(session, k):
        with pytest.raises(SessionGone) as gone:
            call()
        assert gone.value.status == 410
        assert isinstance(gone.value, InvalidRequest)
    session.delete()
    with pytest.raises(ZeroDivisionError), opened(client) as failed:
        raise ZeroDivisionError
    with pytest.raises(SessionGone):
        failed.info()


def test_sessions_expire(serve):
    _, k, _ = sequence(1)
    settings = Settings(attention_threshold=512, session_ttl_seconds=0.3)
    with serve(settings) as url, Client(url) as client, opened(client) as session:
        time.sleep(0.5)
        for call in every_call(session, k):
            with pytest.raises(SessionGone, match="expired"):
                call()


def test_sessions_are_bounded(serve):
    _, k, v = sequence(50)
    settings = Settings(attention_threshold=512, max_sessions=2, max_session_bytes=k.nbytes * 2)
    with serve(settings) as url, Client(url, retries=0) as client, opened(client) as session:
        with pytest.raises(InvalidRequest, match="keeps at most") as refused:
            session.append(k.repeat(2, 1), v.repeat(2, 1))
        assert refused.value.status == 409
        assert not isinstance(refused.value, SessionGone)
        session.append(k[:, :9], v[:, :9])
        with opened(client), pytest.raises(Overloaded) as busy:
            opened(client)
        assert busy.value.retry_after_seconds == 1
        assert session.info()["tokens"] == session.tokens == 9


def test_a_session_of_another_process_is_gone_and_a_route_that_is_not_there_is_not(service_url):
    found = [httpx.get(f"{service_url}{path}") for path in (f"{PATH}/x", "/v1/attention/nothing")]
    errors = [error_of(answer.status_code, answer.headers, answer.content) for answer in found]
    assert [type(error) for error in errors] == [SessionGone, InvalidRequest]
    assert [error.status for error in errors] == [404, 404]


def test_what_ends_the_block_is_not_hidden_by_what_ends_the_session(serve):
    with serve(Settings(attention_threshold=512)) as url:
        client = Client(url, sleep=lambda seconds: None)
        sessions = [opened(client) for _ in range(2)]
    with pytest.raises(ZeroDivisionError), sessions[0]:
        raise ZeroDivisionError
    with pytest.raises(ConnectionFailed), sessions[1]:
        pass
    client.close()


def test_the_async_session_is_the_same(client, service_url):
    q, k, v = sequence(10)

    async def everything():
        transport = AsyncLosing(httpx.ReadError("reset"))
        async with AsyncClient(service_url, transport=transport, sleep=lambda seconds: asyncio.sleep(0)) as twin:
            async with await twin.attention_session(heads=H, dim=D, method="elu") as session:
                assert isinstance(session, AsyncSession)
                output = await session.append(k, v, q)
                assert (session.step, session.tokens, transport.faults) == (1, 10, [])
                await asyncio.gather(*(session.append(k[:, 0], v[:, 0]) for _ in range(5)))
                asked, told, data = await session.query(q[:, 0]), await session.info(), await session.export()
            for call in (session.info, session.export, lambda: session.query(k), lambda: session.append(k, v)):
                with pytest.raises(SessionGone):
                    await call()
            async with await twin.import_session(data) as continued:
                assert np.array_equal(await continued.query(q[:, 0]), asked)
            return output, asked, told

    output, asked, told = asyncio.run(everything())
    with opened(client, method="elu") as session:
        assert np.array_equal(output, session.append(k, v, q))
        for _ in range(5):
            session.append(k[:, 0], v[:, 0])
        assert np.array_equal(asked, session.query(q[:, 0]))
        assert {**told, "id": session.id} == {**session.info(), "id": session.id}
        assert told["tokens"] == 15


def test_a_cancelled_append_is_repeated_before_anything_else(service_url):
    q, k, v = sequence(3)

    class Slow(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request):
            response = await super().handle_async_request(request)
            if request.url.path.endswith("/append") and not taken_in:
                taken_in.append(request)
                await asyncio.sleep(30)
            return response

    taken_in = []

    async def cancelled():
        async with (
            AsyncClient(service_url, transport=Slow()) as twin,
            await twin.attention_session(heads=H, dim=D, method="exact") as session,
        ):
            task = asyncio.create_task(session.append(k, v, q))
            while not taken_in:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(ValueError, match="repeat it"):
                await session.append(k, v)
            return await session.append(k, v, q), (await session.info())["tokens"]

    output, tokens = asyncio.run(cancelled())
    np.testing.assert_allclose(output, causal(q, k, v), atol=1e-5)
    assert tokens == 3


@pytest.mark.parametrize(
    "read",
    [
        read_opened,
        read_shown,
        read_export,
        lambda body: read_step(body, several=True),
        lambda body: read_query(body, several=True),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b"{}x", b"[1]", b"\x02" + bytes(7) + b"{}"])
def test_an_answer_that_cannot_be_read(read, body):
    if (read, body[8:]) == (read_export, b"{}"):
        assert read(body) == body  # a file with nothing in it
        return
    with pytest.raises(UnexpectedAnswer, match="answer cannot be read") as raised:
        read(body)
    assert isinstance(raised.value, LogitdError)
