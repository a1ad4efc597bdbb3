"""/v1/attention/sessions against callers who mean harm: forged exports, answers and sessions too large, bad shapes."""

import concurrent.futures
import json
import threading
import time

import httpx
import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from session_calls import BINARY, PATH, D, H, appended, asked, opened, sequence
from wire import SAFETENSORS, post, post_tensors

from logitd.api import session_steps, sessions
from logitd.api.tensors import digest
from logitd.settings import Settings
from logitd.wire import safetensors as wire
from logitd.wire.tensor import Tensor
from logitd_kernels.attention.streams import early
from logitd_kernels.attention.streams.exact import ExactStream

SETTING = "__metadata__.logitd_stream."


def exported(url, tokens=333, **fields):
    session = opened(url, **fields)
    q, k, v = sequence(tokens)
    appended(url, session, k, v, q)
    content = httpx.get(f"{url}{PATH}/{session}/export").content
    size = int.from_bytes(content[:8], "little")
    told = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["logitd_stream"])
    return told, load(content)


def forged(told, tensors):
    """Return an export of anything, with the checksum that belongs to it."""
    told = {name: value for name, value in told.items() if name != "sha256"}
    told["sha256"] = digest(told, wire.decode(save(tensors))[0]).hex()
    return save(tensors, {"logitd_stream": json.dumps(told)})


def imported(url, told, tensors):
    return post(url, f"{PATH}/import", forged(told, tensors), SAFETENSORS)


SETTINGS = [
    ("heads", 0),
    ("heads", 1 << 40),
    ("heads", 2.0),
    ("heads", True),
    ("heads", 3),
    ("kv_heads", None),
    ("kv_heads", 4),
    ("dim", "8"),
    ("dim", 1025),
    ("value_dim", None),
    ("value_dim", -1),
    ("scale", float("nan")),
    ("scale", float("inf")),
    ("scale", "1"),
    ("method", "magic"),
    ("method", ["hybrid"]),
    ("modes", ["exact"]),
    ("modes", "exact"),
    ("options.rank", 65),
    ("options.rank", None),
    ("options.feature_dim", 1 << 40),
    ("options.seed", -1),
    ("options.orthogonal", 1),
    ("options.chunk", 0),
    ("options.chunk", 4097),
    ("options.chunk", 1.5),
    ("options.extra", 1),
    ("extra", 1),
    ("plan", None),
]


@pytest.mark.parametrize(("path", "wrong"), SETTINGS)
def test_a_forged_setting_is_refused(service_url, path, wrong):
    told, tensors = exported(service_url, method="hybrid")
    place = told["setting"]
    *outer, name = path.split(".")
    for part in outer:
        place = place[part]
    place[name] = wrong
    response = imported(service_url, told, tensors)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"].startswith(SETTING)


@pytest.mark.parametrize("method", ["exact", "hybrid", "moment", "trig"])
def test_a_forged_number_or_tensor_is_refused(service_url, method):
    told, tensors = exported(service_url, method=method)
    assert imported(service_url, told, tensors).status_code == 201
    for name, wrong in (
        ("step", -1),
        ("step", 1 << 53),
        ("step", 1.0),
        ("step", None),
        ("tolerance", float("inf")),
        ("tolerance", float("nan")),
        ("tolerance", -0.1),
        ("tolerance", None),
        ("numbers", []),
        ("numbers", {**told["numbers"], "extra": 1}),
        ("numbers", {**told["numbers"], "feature_dim": 1 << 40}),
        ("numbers", {**told["numbers"], next(iter(tensors)): 1}),
        ("setting", 3),
        ("setting", None),
        ("version", True),
        ("surplus", 1),
    ):
        response = imported(service_url, {**told, name: wrong}, tensors)
        assert response.status_code == 422, (name, wrong, response.text)
    for name, tensor in tensors.items():
        missing = {other: tensors[other] for other in tensors if other != name}
        for given in (
            {**missing, "spare": tensor},
            {**missing, name: tensor.astype(np.float16)},
            {**missing, name: tensor[None]},
            {**missing, name: np.full_like(tensor, np.nan if tensor.dtype.kind == "f" else -1)},
            {**tensors, "extra": tensor},
        ):
            if (
                name in given
                and "extra" not in given
                and given[name].shape == tensor.shape
                and (
                    not tensor.size or name == "early_error"  # which is no number of zero values
                )
            ):
                continue
            response = imported(service_url, told, given)
            assert response.status_code == 422, (name, response.text)


def test_an_import_is_an_export(service_url):
    told, tensors = exported(service_url)
    body = forged(told, tensors)
    for content_type in ("application/json", "", "text/plain"):
        assert post(service_url, f"{PATH}/import", body, content_type).status_code == 415
    deep = json.dumps({**told, "sha256": ""}).replace('"numbers": {}', '"numbers": ' + "[" * 50_000 + "]" * 50_000)
    response = post(service_url, f"{PATH}/import", save(tensors, {"logitd_stream": deep}), SAFETENSORS)
    assert response.status_code == 422


@pytest.mark.parametrize("fields", [{"tolerance": float("inf")}, {"scale": float("inf")}, {"layer": 0}])
def test_what_is_no_number_or_has_no_plan_is_refused(service_url, fields):
    response = post(service_url, PATH, {"heads": H, "dim": D, **fields})
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"] == next(iter(fields))


def test_tensors_of_other_ranks_are_named(service_url):
    session = opened(service_url)
    _, k, v = sequence(3)
    for wrong in (np.float32(1), k[0, 0], k[0], k[None], k[:, :, :0]):
        for name, tensors in (("q", {"q": wrong}), ("q", {"k": k, "v": v, "q": wrong}), ("k", {"k": wrong, "v": v})):
            route = "query" if "k" not in tensors else "append"
            response = post_tensors(service_url, f"{PATH}/{session}/{route}", tensors)
            assert response.status_code == 422, response.text
            assert response.json()["errors"][0]["path"] == name


@pytest.mark.parametrize("shape", [(H, 1 << 61, 0), (0, 1 << 61, D), (1 << 61, 1 << 61, 0), (1 << 61, 0, 1 << 61)])
def test_tensors_of_nothing_have_no_length(service_url, shape):
    """The product of such lengths is beyond 64 bits."""
    session = opened(service_url)
    body = b"".join(wire.encode({"q": Tensor("F32", shape, memoryview(b""))}, {}))
    assert post(service_url, f"{PATH}/{session}/query", body, SAFETENSORS).status_code == 400
    told, tensors = exported(service_url, method="exact")
    given = {name: Tensor.of(tensor) for name, tensor in tensors.items()} | {"k": Tensor("F32", shape, memoryview(b""))}
    told.pop("sha256")
    told["sha256"] = digest(told, given).hex()
    body = b"".join(wire.encode(given, {"logitd_stream": json.dumps(told)}))
    assert post(service_url, f"{PATH}/import", body, SAFETENSORS).status_code == 400


def test_answers_are_bounded(serve):
    with serve(Settings(max_body_bytes=100_000, max_json_bytes=20_000)) as url:
        session = opened(url, heads=1, dim=1, value_dim=1024, method="elu")
        for tokens, headers, path in ((2, {}, "accept"), (30, BINARY, "q")):
            k, v = np.zeros((1, tokens, 1), np.float32), np.zeros((1, tokens, 1024), np.float32)
            own = {"k": k[:, :20], "v": v[:, :20], "q": k} if tokens <= 20 else None
            for route, tensors in (("query", {"q": k}), ("append", own)):
                if tensors:
                    response = post_tensors(url, f"{PATH}/{session}/{route}", tensors, **headers)
                    assert response.status_code == 422, response.text
                    assert response.json()["errors"][0]["path"] == path
        assert httpx.get(f"{url}{PATH}/{session}").json()["step"] == 0
        assert asked(url, session, np.zeros((1, 20, 1), np.float32)).shape == (1, 20, 1024)


def test_a_reply_counts_before_it_is_computed(serve):
    """A session of one size filled its room with a reply, and no append had room ever after."""
    q, k, v = sequence(200)
    with serve(Settings(max_session_bytes=10_000)) as url:
        session = opened(url, method="elu")
        full = post_tensors(url, f"{PATH}/{session}/append", {"q": q, "k": k, "v": v}, **BINARY)
        assert full.status_code == 409
        assert httpx.get(f"{url}{PATH}/{session}").json()["step"] == 0
        for _ in range(3):
            appended(url, session, k[:, :100], v[:, :100], q[:, :100])


def test_a_large_reply_is_not_kept(serve, monkeypatch):
    monkeypatch.setattr(session_steps, "KEPT_REPLY_BYTES", 5000)
    q, k, v = sequence(200)
    with serve(Settings(max_session_bytes=10_000)) as url:
        session = opened(url, method="elu")
        appended(url, session, k, v, q, step=0)
        again = post_tensors(url, f"{PATH}/{session}/append", {"k": k, "v": v, "q": q}, {"step": 0}, **BINARY)
        assert again.status_code == 409
        assert "ask by query" in again.json()["detail"]
        appended(url, session, k, v, q, step=1)


def test_the_limit_of_all_holds_while_steps_run(serve, monkeypatch):
    """Each of many steps at once looked at the same free room, and took it."""
    attend = ExactStream.attend

    def slow(*args):
        time.sleep(0.3)
        return attend(*args)

    monkeypatch.setattr(ExactStream, "attend", slow)
    _, k, v = sequence(100)
    size = k.nbytes + v.nbytes
    limit = 6 * size
    with serve(Settings(max_sessions_bytes=limit, attention_threads=8, attention_queue=100)) as url:
        ids = [opened(url) for _ in range(8)]

        def step(session):
            return post_tensors(url, f"{PATH}/{session}/append", {"k": k, "v": v}).status_code

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(step, ids))
        assert set(codes) == {200, 503}
        told = [httpx.get(f"{url}{PATH}/{session}").json()["state_bytes"] for session in ids]
        assert sum(told) <= limit


def test_a_session_that_never_fits_is_refused_before_it_is_built(serve, monkeypatch):
    def never(*_):
        raise AssertionError

    with serve(Settings(max_sessions_bytes=2_500_000, max_session_bytes=1_000_000)) as url:
        told, tensors = exported(url, method="hybrid", heads=H)
        with monkeypatch.context() as patch:
            patch.setattr(sessions, "open_stream", never)
            for method in ("hybrid", "moment", "elu", "trig"):
                wide = {"heads": 64, "dim": 1024, "method": method}
                response = post(url, PATH, wide)
                assert response.status_code == 422, response.text
        told["setting"]["heads"] = told["setting"]["kv_heads"] = 1024
        assert imported(url, told, tensors).status_code == 422
        one = {"heads": 4, "dim": 64, "method": "hybrid"}
        assert [post(url, PATH, one).status_code for _ in range(3)] == [201, 201, 503]


def test_sessions_are_opened_on_a_thread_and_admitted(serve, monkeypatch):
    where, go, open_stream = [], threading.Event(), sessions.open_stream

    def slow(setting):
        where.append(threading.current_thread().name)
        go.wait(10)
        return open_stream(setting)

    monkeypatch.setattr(sessions, "open_stream", slow)
    with serve(Settings(attention_queue=1)) as url, concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(opened, url)
        while not where:
            time.sleep(0.01)
        assert httpx.get(f"{url}{PATH}/x", timeout=5).status_code == 404  # the loop is free
        assert post(url, PATH, {"heads": H, "dim": D}).status_code == 503
        go.set()
        first.result()
    assert where[0].startswith("logitd-attention")


def test_a_creation_is_short(serve):
    with serve(Settings(max_json_bytes=1000)) as url:
        assert post(url, PATH, {"heads": H, "dim": D, "method": "x" * 2000}).status_code == 413


def test_a_failing_append_changes_nothing(service_url, monkeypatch):
    q, k, v = sequence(400)
    session = opened(service_url, method="hybrid", scale=1e38)
    small = (q / 1e2, k / 1e2)
    appended(service_url, session, small[1][:, :100], v[:, :100], small[0][:, :100])
    for sent in ({"q": q * 10}, {"k": k * 10}):
        tensors = {"q": q / 1e2, "k": k / 1e2, "v": v, **sent}
        response = post_tensors(service_url, f"{PATH}/{session}/append", tensors)
        assert response.status_code == 422, response.text
        assert response.json()["errors"][0]["path"] == next(iter(sent))
    one = opened(service_url, method="hybrid")
    appended(service_url, one, k[:, :100], v[:, :100], q[:, :100])
    with monkeypatch.context() as patch:
        patch.setattr(early, "fit_basis", lambda *_: torch.linalg.cholesky(-torch.eye(2)))
        response = post_tensors(service_url, f"{PATH}/{one}/append", {"q": q, "k": k, "v": v})
        assert response.status_code == 422, response.text
    for name in (session, one):
        told = httpx.get(f"{service_url}{PATH}/{name}").json()
        assert (told["step"], told["tokens"]) == (1, 100)


def test_a_session_does_not_expire_under_a_step(serve, monkeypatch):
    _, k, v = sequence(2)
    reply = session_steps._reply

    def slow(*args):
        time.sleep(2.0)
        return reply(*args)

    with serve(Settings(session_ttl_seconds=1.0)) as url:
        session = opened(url)
        with monkeypatch.context() as patch, concurrent.futures.ThreadPoolExecutor(1) as pool:
            patch.setattr(session_steps, "_reply", slow)
            step = pool.submit(appended, url, session, k, v)
            time.sleep(1.4)
            opened(url)  # drops what has expired
            step.result()
        assert httpx.get(f"{url}{PATH}/{session}").json()["tokens"] == 2
        time.sleep(1.1)
        assert httpx.get(f"{url}{PATH}/{session}").status_code == 410


def test_a_session_is_opened_by_json_alone(service_url):
    body = {"heads": H, "dim": D}
    for content_type in (SAFETENSORS, "application/x-npy", "", "text/plain"):
        response = post(service_url, PATH, body, content_type)
        assert response.status_code == 415
        assert response.json()["detail"].startswith("content-type: expected one of application/json, got")
    assert post(service_url, PATH, {**body, "q": [[[1]]]}).json()["errors"][0]["path"] == "q"
