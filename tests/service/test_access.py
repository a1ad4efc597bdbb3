"""API keys: who may ask, and that nobody learns them."""

import socket

import httpx
import pytest
from pydantic import SecretStr
from running import inside, running
from wire import post

from logitd import AsyncClient, Client, InvalidRequest
from logitd.access import Keys, keys_of
from logitd.errors import CannotServe
from logitd.settings import Settings

KEY, OTHER = "correct-horse-battery", "staple-0123456789"
SAMPLE = {"logits": [[1, 2, 3]], "params": {"temperature": 0}}


@pytest.fixture(scope="module")
def guarded():
    with inside(Settings(api_keys=SecretStr(f"alice:{KEY},{OTHER}"))) as (_, url, _):
        yield url


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer   {OTHER}"},
        {"x-api-key": KEY},
        {"x-api-key": OTHER, "authorization": "Basic YTpi"},  # a proxy's own
    ],
    ids=["bearer", "other", "x-api-key", "beside-basic"],
)
def test_a_known_key_opens(guarded, headers):
    assert post(guarded, "/v1/sample", SAMPLE, **headers).json()["rows"][0]["token"] == 2
    assert httpx.get(f"{guarded}/metrics", headers=headers).status_code == 200
    assert httpx.get(f"{guarded}/nowhere", headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("headers", "detail", "challenge"),
    [
        ({}, "an API key is required", 'Bearer realm="logitd"'),
        ({"authorization": f"Basic {KEY}"}, "an API key is required", 'Bearer realm="logitd"'),
        ({"authorization": "Bearer"}, "the API key is unknown", 'Bearer realm="logitd", error="invalid_token"'),
        ({"x-api-key": KEY[:-1]}, "the API key is unknown", 'Bearer realm="logitd", error="invalid_token"'),
        ({"x-api-key": f"{KEY}x"}, "the API key is unknown", 'Bearer realm="logitd", error="invalid_token"'),
        ({"x-api-key": f"alice:{KEY}"}, "the API key is unknown", 'Bearer realm="logitd", error="invalid_token"'),
        ({"x-api-key": "alice"}, "the API key is unknown", 'Bearer realm="logitd", error="invalid_token"'),
    ],
    ids=["none", "basic", "empty", "shorter", "longer", "name-and-key", "name"],
)
def test_everybody_else_is_refused(guarded, headers, detail, challenge):
    for path in ("/v1/sample", "/v1/info", "/metrics", "/docs", "/openapi.json", "/", "/nowhere", "/health/live/"):
        answer = httpx.get(f"{guarded}{path}", headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
        assert answer.headers["www-authenticate"] == challenge
        assert (answer.json()["error"], answer.json()["type"]) == (detail, "urn:logitd:problem:unauthorized")


def test_probes_need_no_key(guarded):
    assert httpx.get(f"{guarded}/health/live").status_code == 200
    assert httpx.get(f"{guarded}/health/ready").status_code == 200


def test_a_refusal_comes_before_the_body(guarded):
    host, port = guarded.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/sample HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            b"content-type: application/json\r\ncontent-length: 100000000\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_no_key_is_ever_told(guarded):
    told = httpx.get(f"{guarded}/v1/info", headers={"x-api-key": KEY}).text
    assert "api_keys" not in told
    assert KEY not in told
    settings = Settings(api_keys=SecretStr(KEY))
    assert KEY not in f"{settings!r} {settings} {settings.model_dump()} {vars(keys_of(settings))}"


def test_the_log_names_the_key_and_not_the_secret(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# people\n\n  bob : {KEY}\n{OTHER}\n")
    with running("--api-keys-file", file) as service:
        for key in (KEY, OTHER, "wrong-key"):
            httpx.get(f"{service.url}/v1/info", headers={"x-api-key": key})
        assert httpx.get(f"{service.admin}/metrics").status_code == 200  # loopback, and no key there
    asked = [line for line in service.log() if line.get("path") == "/v1/info"]
    assert [line.get("caller") for line in asked] == ["bob", "key-2", None]
    assert [line["status"] for line in asked] == [200, 200, 401]
    for secret in (KEY, OTHER, "wrong-key"):
        assert secret not in "".join(service.lines)


def test_without_keys_everybody_may_ask(service_url):
    assert httpx.get(f"{service_url}/v1/info").status_code == 200


@pytest.mark.parametrize("text", ["", " , ", "zoe:", "two words", "schlüssel-schlüssel", "tab\tinside", "a:b:c"])
def test_keys_that_cannot_be_keys(text):
    with pytest.raises(CannotServe) as refused:
        keys_of(Settings(api_keys=SecretStr(text)))
    assert text not in str(refused.value) or not text.strip(" ,")


@pytest.mark.parametrize("content", [b"", b"# none\n", b"\xff\xfe"], ids=["empty", "comments", "not-utf-8"])
def test_a_file_that_holds_no_key_closes_the_service(tmp_path, content):
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(CannotServe):
        keys_of(Settings(api_keys_file=tmp_path / "keys"))


def test_every_known_key_is_looked_at(monkeypatch):
    """The time does not tell which key it was, or how much of it is right: all are compared, by digests."""
    looked = []
    monkeypatch.setattr("logitd.access.hmac.compare_digest", lambda a, b: looked.append((len(a), len(b))) or a == b)
    keys = Keys([("a", "first"), ("b", "second"), ("c", "third")])
    for presented, name in ((b"first", "a"), (b"third", "c"), (b"", None), (b"x" * 5000, None)):
        looked.clear()
        assert keys.name_of(presented) == name
        assert looked == [(32, 32)] * 3


def test_the_clients_bring_a_key(guarded, monkeypatch):
    with Client(guarded, api_key=KEY) as client:
        assert client.sample([[1.0, 2.0]], temperature=0).tokens.tolist() == [1]
    with Client(guarded, headers={"X-API-Key": OTHER}) as client:
        assert client.info()["version"]
    with Client(guarded, retries=0) as client, pytest.raises(InvalidRequest) as refused:
        client.info()
    assert refused.value.status == 401
    monkeypatch.setenv("LOGITD_API_KEY", OTHER)
    with Client(guarded) as client:
        assert client.info()["version"]
    with Client(guarded, headers={"Authorization": f"Bearer {KEY}"}) as client:
        assert client.info()["version"]
    with Client(guarded, api_key="") as client, pytest.raises(InvalidRequest):
        client.info()


def test_the_asynchronous_client_brings_a_key(guarded):
    import asyncio

    async def ask():
        async with AsyncClient(guarded, api_key=KEY) as client:
            return await client.info()

    assert asyncio.run(ask())["version"]


@pytest.mark.parametrize("key", ["two words", "schlüssel", "line\nbreak"])
def test_a_key_that_no_header_can_carry(key):
    with pytest.raises(ValueError, match="API key") as refused:
        Client(api_key=key)
    assert key not in str(refused.value)
