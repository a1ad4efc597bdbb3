"""What a replica and the proxies' refusals do, without a cluster."""

import asyncio
import importlib
import json
import warnings

import pytest
from served import DEPLOY

pytestmark = pytest.mark.ray


@pytest.fixture
def replicas(monkeypatch):
    monkeypatch.syspath_prepend(DEPLOY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, of what it imports
        return importlib.import_module("logitd_ray")


@pytest.fixture
def proxy(monkeypatch):
    monkeypatch.syspath_prepend(DEPLOY)
    return importlib.import_module("logitd_ray_proxy")


def test_a_replica_is_healthy_while_it_is_ready(replicas):
    replica = replicas.Replica({"compute_threads": 1})
    lifecycle = replica.__serve_build_asgi_app__().lifecycle
    with pytest.raises(RuntimeError, match="starting"):
        replica.check_health()
    lifecycle.warmed()
    replica.check_health()
    lifecycle.failed("a kernel")
    with pytest.raises(RuntimeError, match="failed"):
        replica.check_health()
    lifecycle.recovered()
    replica.check_health()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"settings": {"batch_row": 1}}, "batch_row"),
        ({"settings": {"batch_rows": 0}}, "batch_rows"),
        ({"settings": {"shared_memory": True}}, "shared_memory"),
        ({"setting": {}}, "setting"),
    ],
)
def test_what_cannot_be_deployed_says_so(replicas, arguments, told):
    with pytest.raises(ValueError, match=told):
        replicas.build(arguments)


def answered(proxy, *messages):
    """Return status, headers and body of what a client gets where Ray's proxy sends these messages."""
    sent = []

    async def ray(scope, receive, send):
        for message in messages:
            await send(message)

    async def send(message):
        sent.append(message)

    asyncio.run(proxy.Refusals(ray)({"type": "http", "headers": []}, None, send))
    start, *rest = sent
    return start["status"], dict(start["headers"]), b"".join(message["body"] for message in rest)


def messages(status, content_type, body, **headers):
    named = {"content-type": content_type, **headers}
    pairs = [[name.replace("_", "-").encode(), value.encode()] for name, value in named.items()]
    start = {"type": "http.response.start", "status": status, "headers": pairs}
    return start, {"type": "http.response.body", "body": body}


@pytest.mark.parametrize(
    ("sent", "status", "retry_after"),
    [
        (messages(429, "text/plain", b"Request dropped", retry_after="3"), 429, b"3"),
        (messages(503, "text/plain", b"unavailable"), 503, b"1"),
        (messages(408, "text/plain; charset=utf-8", b"timed out"), 504, None),
        ((), 503, b"1"),
    ],
)
def test_the_proxys_refusals_are_problem_documents(proxy, sent, status, retry_after):
    code, headers, body = answered(proxy, *sent)
    assert (code, headers.get(b"retry-after")) == (status, retry_after)
    assert headers[b"content-type"] == b"application/problem+json"
    assert json.loads(body)["status"] == status
    assert int(headers[b"content-length"]) == len(body)


@pytest.mark.parametrize(
    "sent",
    [
        messages(200, "text/plain; version=0.0.4", b"logitd_ready 1"),
        messages(404, "text/plain", b"Path not found"),
        messages(429, "application/problem+json", b"{}", retry_after="7"),
    ],
)
def test_other_answers_pass_as_they_are(proxy, sent):
    code, headers, body = answered(proxy, *sent)
    assert (code, headers, body) == (sent[0]["status"], dict(map(tuple, sent[0]["headers"])), sent[1]["body"])
