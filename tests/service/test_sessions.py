"""/v1/attention/sessions: pieces of any size, steps, expiry, quotas, export and import, over HTTP."""

import concurrent.futures
import json
import re
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest
from session_calls import BINARY, PATH, D, H, appended, asked, opened, sequence
from wire import SAFETENSORS, post, post_tensors

from logitd.settings import Settings
from logitd_kernels.attention.streams import STREAMS


def causal(q, k, v):
    """Float64 softmax attention of [H, T, d], each query of its own position and what came before."""
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    seen = np.arange(k.shape[1])[None] <= np.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v.astype(float)


@pytest.mark.parametrize("sizes", [[40], [1] * 40, [7, 1, 20, 12]])
def test_exact_sessions_are_causal_attention(service_url, sizes):
    q, k, v = sequence(40)
    session, outputs, start = opened(service_url), [], 0
    for step, size in enumerate(sizes):
        new = slice(start, start + size)
        output, state = appended(service_url, session, k[:, new], v[:, new], q[:, new], step=step)
        outputs.append(output)
        start += size
        assert (state["step"], state["tokens"]) == (step + 1, start)
    np.testing.assert_allclose(np.concatenate(outputs, 1), causal(q, k, v), atol=1e-5)
    everything = asked(service_url, session, q)
    np.testing.assert_allclose(everything[:, -1], causal(q, k, v)[:, -1], atol=1e-5)


@pytest.mark.parametrize("method", STREAMS)
def test_pieces_of_any_size_answer_alike(service_url, method):
    q, k, v = sequence(120)
    q, k = q * 0.3, k * 0.3  # or normalisers of `trig` come near 0, and rounding matters
    answers = []
    for size in (120, 50, 7):
        session, outputs = opened(service_url, method=method, seed=3), []
        for start in range(0, 120, size):
            new = slice(start, start + size)
            outputs.append(appended(service_url, session, k[:, new], v[:, new], q[:, new])[0])
        answers.append(np.concatenate([*outputs, asked(service_url, session, q)], 1))
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], atol=1e-5 * np.abs(answers[0]).max())


def test_grouped_heads_and_other_dims(service_url):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 9, 5), (2, 9, 5), (2, 9, 3)))
    for method in ("exact", "elu"):
        session = opened(service_url, method=method, heads=4, kv_heads=2, dim=5, value_dim=3, scale=0.7)
        output, _ = appended(service_url, session, k, v, q)
        assert output.shape == (4, 9, 3)
    session = opened(service_url, heads=4, kv_heads=2, dim=5, value_dim=3)
    output, _ = appended(service_url, session, k, v, q)
    np.testing.assert_allclose(output, causal(q, k.repeat(2, 0), v.repeat(2, 0)), atol=1e-5)


def test_fewer_queries_than_tokens_are_the_last_ones(service_url):
    q, k, v = sequence(30)
    for method in ("exact", "elu"):
        whole, some = opened(service_url, method=method), opened(service_url, method=method)
        every, _ = appended(service_url, whole, k, v, q)
        last, _ = appended(service_url, some, k, v, q[:, -4:])
        np.testing.assert_allclose(last, every[:, -4:], atol=1e-6)


def test_json_and_safetensors_agree(service_url):
    q, k, v = sequence(5)
    one, two = opened(service_url), opened(service_url)
    body = {"q": q.tolist(), "k": k.tolist(), "v": v.tolist(), "step": 0}
    response = post(service_url, f"{PATH}/{one}/append", body)
    assert response.status_code == 200, response.text
    np.testing.assert_allclose(response.json()["output"], appended(service_url, two, k, v, q)[0], atol=1e-6)
    asked_json = post(service_url, f"{PATH}/{one}/query", {"q": q.tolist()}).json()
    np.testing.assert_allclose(asked_json["output"], asked(service_url, two, q), atol=1e-6)


def test_steps_are_counted_and_a_repeated_one_is_answered_again(service_url):
    q, k, v = sequence(3)
    session = opened(service_url, method="elu")
    first = post_tensors(service_url, f"{PATH}/{session}/append", {"q": q, "k": k, "v": v}, {"step": 0}, **BINARY)
    again = post_tensors(service_url, f"{PATH}/{session}/append", {"q": q, "k": k, "v": v}, {"step": 0}, **BINARY)
    assert first.content == again.content
    assert httpx.get(f"{service_url}{PATH}/{session}").json()["tokens"] == 3
    for step in (2, 5):
        wrong = post_tensors(service_url, f"{PATH}/{session}/append", {"k": k, "v": v}, {"step": step})
        assert wrong.status_code == 409
        assert wrong.json()["errors"] == [{"path": "step", "message": f"the next step is 1, got {step}"}]
    _, state = appended(service_url, session, k, v, step=1)
    assert (state["step"], state["tokens"]) == (2, 6)
    for tensors, headers in (({"k": k, "v": k}, BINARY), ({"k": k, "v": v, "q": q}, BINARY), ({"k": k, "v": v}, {})):
        other = post_tensors(service_url, f"{PATH}/{session}/append", tensors, {"step": 1}, **headers)
        assert other.status_code == 409
        assert "step 1 was another request" in other.json()["detail"]
    gone_by = post_tensors(service_url, f"{PATH}/{session}/append", {"k": k, "v": v}, {"step": 0}, **BINARY)
    assert gone_by.status_code == 409


def test_a_refused_step_changes_nothing(service_url):
    _, k, v = sequence(3)
    session = opened(service_url)
    bad = k.copy()
    bad[1, 2, 3] = np.inf
    for tensors, path in (
        ({"k": bad, "v": v}, "k"),
        ({"k": k}, "v"),
        ({"k": k, "v": v[:, :2]}, "v"),
        ({"k": k[:1], "v": v}, "k"),
        ({"k": k, "v": v, "q": sequence(4)[0]}, "q"),
        ({"k": k.astype(np.int32), "v": v}, "k"),
        ({"k": k, "v": v, "mask": k}, "mask"),
    ):
        response = post_tensors(service_url, f"{PATH}/{session}/append", tensors)
        assert response.status_code == 422, response.text
        assert response.json()["errors"][0]["path"] == path
    told = httpx.get(f"{service_url}{PATH}/{session}").json()
    assert (told["step"], told["tokens"]) == (0, 0)
    assert np.array_equal(asked(service_url, session, k), np.zeros_like(k))


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"method": "magic"}, "method"),
        ({"method": "favor_sharp"}, "method"),
        ({"heads": 0}, "heads"),
        ({"kv_heads": 3}, "heads"),
        ({"method": "trig", "feature_dim": 3}, "feature_dim"),
        ({"modes": ["exact"]}, "modes"),
        ({"modes": ["exact", "nystrom"]}, "modes[1]"),
        ({"plan": {"version": 1, "layers": {}}}, "layer"),
        ({"plan": {"version": 1, "layers": {}}, "layer": 1}, "layer"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_is_wrong_is_named(service_url, fields, path):
    response = post(service_url, PATH, {"heads": H, "dim": D, **fields})
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"] == path


@pytest.mark.parametrize("method", STREAMS)
def test_an_export_continues_on_the_same_bits(serve, service_url, method):
    q, k, v = sequence(400)
    session = opened(service_url, method=method, seed=5)
    appended(service_url, session, k[:, :333], v[:, :333], q[:, :333])
    exported = httpx.get(f"{service_url}{PATH}/{session}/export")
    assert exported.headers["content-type"] == SAFETENSORS
    with serve(Settings()) as other:
        response = post(other, f"{PATH}/import", exported.content, SAFETENSORS)
        assert response.status_code == 201, response.text
        told = response.json()
        assert (told["step"], told["tokens"], told["method"]) == (1, 333, method)
        there, _ = appended(other, told["id"], k[:, 333:], v[:, 333:], q[:, 333:], step=1)
        here, _ = appended(service_url, session, k[:, 333:], v[:, 333:], q[:, 333:], step=1)
        assert np.array_equal(there, here)
        assert np.array_equal(asked(other, told["id"], q), asked(service_url, session, q))
        assert other != service_url


def test_heads_follow_a_plan(service_url):
    q, k, v = sequence(400, heads=3)
    plan = {"version": 1, "layers": {"4": {"modes": ["exact", "moment", "exact"]}}}
    session = opened(service_url, heads=3, plan=plan, layer=4, method="hybrid", tolerance=0.01)
    output, _ = appended(service_url, session, k, v, q)
    np.testing.assert_allclose(output[[0, 2]], causal(q, k, v)[[0, 2]], atol=1e-5)
    assert np.abs(output[1] - causal(q, k, v)[1]).max() > 1e-3
    told = httpx.get(f"{service_url}{PATH}/{session}").json()
    assert told["modes"] == ["exact", "moment", "exact"]
    assert told["early_error"][::2] == [None, None]
    assert 0.01 < told["early_error"][1] < 1
    exported = httpx.get(f"{service_url}{PATH}/{session}/export").content
    other = post(service_url, f"{PATH}/import", exported, SAFETENSORS).json()
    assert (other["modes"], other["tolerance"], other["early_error"]) == (told["modes"], 0.01, told["early_error"])
    assert np.array_equal(asked(service_url, other["id"], q), asked(service_url, session, q))


def test_an_export_is_checked(service_url):
    _, k, v = sequence(20)
    session = opened(service_url, method="elu")
    appended(service_url, session, k, v)
    content = httpx.get(f"{service_url}{PATH}/{session}/export").content
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    told = json.loads(header["__metadata__"]["logitd_stream"])

    def imported(changed=None, data=content[8 + size :]):
        header["__metadata__"]["logitd_stream"] = json.dumps(changed or told)
        text = json.dumps(header).encode()
        return post(service_url, f"{PATH}/import", len(text).to_bytes(8, "little") + text + data, SAFETENSORS)

    assert imported().status_code == 201
    flipped = bytearray(content[8 + size :])
    flipped[40] ^= 1
    for response, path in (
        (imported(data=bytes(flipped)), "sha256"),
        (imported({**told, "step": 7}), "sha256"),
        (imported({**told, "version": 2}), "version"),
        (imported({"version": 1}), "logitd_stream"),
        (post_tensors(service_url, f"{PATH}/import", {"k": k}), "logitd_stream"),
    ):
        assert response.status_code == 422, response.text
        assert response.json()["errors"][0]["path"].endswith(path)
    assert post(service_url, f"{PATH}/import", b"nonsense", SAFETENSORS).status_code == 400


def test_sessions_end(serve):
    _, k, v = sequence(2)
    with serve(Settings(session_ttl_seconds=2.0, max_sessions=2)) as url:
        kept, idle = opened(url), opened(url)
        assert post(url, PATH, {"heads": H, "dim": D}).status_code == 503
        for _ in range(5):
            time.sleep(0.5)
            appended(url, kept, k, v)
        gone = httpx.get(f"{url}{PATH}/{idle}")
        assert gone.status_code == 410
        assert httpx.delete(f"{url}{PATH}/{kept}").status_code == 204
        for response in (
            httpx.get(f"{url}{PATH}/{kept}"),
            httpx.delete(f"{url}{PATH}/{kept}"),
            httpx.get(f"{url}{PATH}/{kept}/export"),
            post_tensors(url, f"{PATH}/{kept}/append", {"k": k, "v": v}),
            post_tensors(url, f"{PATH}/{kept}/query", {"q": k}),
        ):
            assert response.status_code == 410
        for unknown in ("x", "A" * 36, kept[:-4] + "AAAA", "%00", "é"):
            assert httpx.get(f"{url}{PATH}/{unknown}").status_code == 404
        assert opened(url) != opened(url)


def test_sessions_are_bounded(serve):
    _, k, v = sequence(100)
    size = 2 * k.nbytes
    with serve(Settings(max_session_bytes=2 * size, max_sessions_bytes=3 * size)) as url:
        one, two = opened(url), opened(url)
        appended(url, one, k, v)
        full = post_tensors(url, f"{PATH}/{one}/append", {"k": k.repeat(2, 1), "v": v.repeat(2, 1)})
        assert full.status_code == 409
        assert httpx.get(f"{url}{PATH}/{one}").json()["tokens"] == 100
        appended(url, two, k, v)
        metrics = httpx.get(f"{url}/metrics").text
        assert "\nlogitd_sessions 2.0\n" in metrics
        held = float(re.search(r"^logitd_session_state_bytes (.+)$", metrics, re.M)[1])
        assert 2 * size <= held <= 2 * size + 4000
        assert post_tensors(url, f"{PATH}/{two}/append", {"k": k, "v": v}).status_code in (409, 503)
        httpx.delete(f"{url}{PATH}/{one}")
        appended(url, two, k[:, :10], v[:, :10])


def test_ids_are_neither_guessable_nor_logged(serve, caplog):
    caplog.set_level("INFO", logger="logitd.request")
    with serve(Settings()) as url:
        ids = {opened(url) for _ in range(20)}
        assert len(ids) == 20
        assert all(re.fullmatch(r"[\w-]{36}", session) for session in ids)
        httpx.get(f"{url}{PATH}/{min(ids)}")
        metrics = httpx.get(f"{url}/metrics").text
    assert 'endpoint="/v1/attention/sessions/{session_id}"' in metrics
    assert not any(session in metrics or session in caplog.text for session in ids)


def test_concurrent_steps_of_one_session_are_one_after_the_other(serve):
    _, k, v = sequence(1)
    with serve(Settings(attention_threads=4, attention_queue=100)) as url:
        session = opened(url, method="elu")

        def step(_):
            return post_tensors(url, f"{PATH}/{session}/append", {"k": k, "v": v}).status_code

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert set(pool.map(step, range(40))) == {200}
        told = httpx.get(f"{url}{PATH}/{session}").json()
        assert (told["step"], told["tokens"]) == (40, 40)


def test_an_export_continues_in_another_process(service_url, tmp_path):
    q, k, v = sequence(50)
    session = opened(service_url, method="elu")
    appended(service_url, session, k, v)
    (tmp_path / "state").write_bytes(httpx.get(f"{service_url}{PATH}/{session}/export").content)
    np.save(tmp_path / "q.npy", q)
    code = (
        "import sys, numpy as np, torch\n"
        "from logitd.api.session_state import import_state\n"
        "stream = import_state(open(sys.argv[1] + '/state', 'rb').read()).stream()\n"
        "np.save(sys.argv[1] + '/out.npy', stream.read(torch.from_numpy(np.load(sys.argv[1] + '/q.npy'))).numpy())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert np.array_equal(np.load(tmp_path / "out.npy"), asked(service_url, session, q))


def test_replicas_that_share_a_key_know_each_others_ids(serve):
    shared = Settings(session_id_key="known to replicas")
    with serve(shared) as here, serve(shared) as there, serve(Settings()) as stranger:
        session = opened(here)
        assert httpx.get(f"{there}{PATH}/{session}").status_code == 410
        assert httpx.get(f"{stranger}{PATH}/{session}").status_code == 404
        assert "session_id_key" not in httpx.get(f"{here}/v1/info").json()["settings"]
