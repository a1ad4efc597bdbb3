"""Probes, metrics, info, the command that serves, and its settings."""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
from wire import post

from logitd.app import create_app
from logitd.log import JsonFormatter
from logitd.settings import Settings
from logitd_kernels import PARAMETERS, available, pick
from logitd_kernels.errors import BackendUnavailable


def test_probes(service_url):
    assert httpx.get(f"{service_url}/health/live").json() == {"status": "live"}
    assert httpx.get(f"{service_url}/health/ready").json() == {"status": "ready"}


def test_not_ready_before_start_up():
    async def probe():
        transport = httpx.ASGITransport(create_app(Settings()))  # runs no lifespan
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            return await client.get("/health/ready")

    response = asyncio.run(probe())
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.headers["content-type"] == "application/problem+json"


def test_info(service_url):
    info = httpx.get(f"{service_url}/v1/info").json()
    assert info["backend"]["name"] == pick("auto").name
    assert set(info["backend"]["unavailable"]) == {name for name, missing in available().items() if missing}
    assert list(info["parameters"]) == list(PARAMETERS)
    assert info["settings"]["max_body_bytes"] == Settings().max_body_bytes


def test_openapi_describes_every_parameter(service_url):
    schema = httpx.get(f"{service_url}/openapi.json").json()
    body = schema["paths"]["/v1/sample"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    params = body["properties"]["params"]["anyOf"][0]
    assert list(params["properties"]) == list(PARAMETERS)
    assert params["additionalProperties"] is False
    assert params["properties"]["top_p"]["exclusiveMinimum"] == 0
    assert params["properties"]["top_p"]["maximum"] == 1
    assert {"logits", "head", "mask", "logprobs", "strict"} <= set(body["properties"])
    assert {"400", "408", "413", "415", "422"} <= set(schema["paths"]["/v1/sample"]["post"]["responses"])
    assert httpx.get(f"{service_url}/", follow_redirects=False).headers["location"] == "/docs"


def test_a_named_backend_must_run_here():
    reason = available()["triton"]
    if reason is not None:
        with pytest.raises(BackendUnavailable, match=f"'triton' is not available: {re.escape(reason)}"):
            create_app(Settings(backend="triton"))
    create_app(Settings(backend="reference"))


def test_reference_backend_serves(serve):
    with serve(Settings(backend="reference")) as url:
        response = post(url, "/v1/sample", {"logits": [[1, 2, 3]], "params": {"temperature": 0}}).json()
    assert (response["backend"], response["rows"][0]["token"]) == ("reference", 2)


def serve_command(*flags, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "logitd.cli", "serve", *flags],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_serves_until_sigterm():
    with serve_command("--port", "0", LOGITD_MAX_ROWS="7") as service:
        started = json.loads(service.stderr.readline())
        assert started["message"] == "listening"
        assert started["backend"] == pick("auto").name
        deadline = time.monotonic() + 30
        while True:
            try:
                assert httpx.get(f"{started['url']}/health/ready").status_code == 200
                break
            except httpx.ConnectError:
                assert time.monotonic() < deadline
        assert httpx.get(f"{started['url']}/v1/info").json()["settings"]["max_rows"] == 7
        service.send_signal(signal.SIGTERM)
        log = service.stderr.read()
        assert service.wait(30) == 0
    line = next(json.loads(line) for line in log.splitlines() if "/v1/info" in line)
    assert (line["message"], line["status"], line["method"]) == ("request", 200, "GET")


@pytest.mark.parametrize(
    ("flags", "environment", "code", "says"),
    [
        (["--port", "99999"], {}, 2, "--port"),
        ([], {"LOGITD_MAX_ROWS": "none"}, 2, "LOGITD_MAX_ROWS"),
        (["--backend", "triton"], {}, 2, "triton"),
    ],
)
def test_bad_settings_end_in_one_line(flags, environment, code, says):
    with serve_command(*flags, **environment) as service:
        _, complaint = service.communicate(timeout=60)
    assert service.returncode == code
    assert says in complaint
    assert len(complaint.splitlines()) == 1


def test_a_port_in_use_ends_in_one_line():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        serve_command("--port", str(taken.getsockname()[1])) as service,
    ):
        _, complaint = service.communicate(timeout=60)
    assert service.returncode == 1
    assert "cannot listen" in complaint
    assert len(complaint.splitlines()) == 1


def test_help_names_every_setting():
    told = subprocess.run(
        [sys.executable, "-m", "logitd.cli", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in told
        assert f"LOGITD_{name.upper()}" in re.sub(r"\s+", "", told)


def test_log_lines_are_json():
    record = logging.LogRecord("x", logging.INFO, "f", 1, "a %s", ("b",), None)
    record.rows = 3
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["rows"], line["level"]) == ("a b", 3, "info")
