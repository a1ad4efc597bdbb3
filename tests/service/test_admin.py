"""The admin port: answers when the main event loop does not."""

import threading
import time

import httpx
import pytest
from running import inside, running, said, until

from logitd.admin import Admin
from logitd.serving.listen import listen
from logitd.settings import Settings


@pytest.fixture
def administered():
    """A service with an admin port: the latter's URL, the main URL, and the main event loop."""
    settings = Settings(live_seconds=0.6)
    with inside(settings) as (app, url, loop):
        listener = listen("127.0.0.1", 0)
        admin = Admin(settings, app.lifecycle, app.metrics, listener)
        admin.start()
        yield listener.url(tls=False), url, loop
        admin.stop()


def test_it_answers_probes_and_metrics_alone(administered):
    admin, url, _ = administered
    assert httpx.get(f"{admin}/health/live").json() == {"status": "live"}
    assert httpx.get(f"{admin}/health/ready").json() == {"status": "ready"}
    assert "\nlogitd_build_info{" in httpx.get(f"{admin}/metrics").text
    for path in ("/v1/info", "/docs", "/openapi.json", "/"):
        answer = httpx.get(f"{admin}{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert httpx.post(f"{admin}/health/live").status_code == 405
    assert httpx.get(f"{url}/health/live").status_code == 200


def test_a_blocked_event_loop(administered):
    admin, url, loop = administered
    release = threading.Event()
    until(lambda: httpx.get(f"{admin}/health/live").status_code == 200)
    loop.call_soon_threadsafe(release.wait, 60)
    try:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{url}/health/live", timeout=0.2)
        began = time.perf_counter()
        assert httpx.get(f"{admin}/health/ready").status_code == 200
        assert "\nlogitd_inflight_requests " in httpx.get(f"{admin}/metrics").text
        assert time.perf_counter() - began < 5
        until(lambda: httpx.get(f"{admin}/health/live").status_code == 503)
        assert said(httpx.get(f"{admin}/health/live").json()).startswith("no sign of life for ")
    finally:
        release.set()
    until(lambda: httpx.get(f"{admin}/health/live").status_code == 200)


def test_the_command_tells_where_it_is():
    with running() as service:
        assert service.admin.startswith("http://127.0.0.1:")
        assert service.admin != service.url
        assert httpx.get(f"{service.admin}/health/live").status_code == 200
        assert httpx.get(f"{service.url}/health/live").status_code == 200
