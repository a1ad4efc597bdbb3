"""States, signs of life, and kernels that fail and come back."""

import httpx
from running import inside, said, until
from wire import post

from logitd.lifecycle import Lifecycle, State
from logitd.settings import Settings


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_states():
    lifecycle = Lifecycle()
    assert (lifecycle.state, lifecycle.ready) == (State.STARTING, False)
    lifecycle.failed("a kernel")
    assert lifecycle.state is State.STARTING
    lifecycle.recovered()
    lifecycle.warmed()
    assert (lifecycle.state, lifecycle.ready) == (State.READY, True)
    lifecycle.failed("a kernel")
    assert (lifecycle.state, lifecycle.ready, lifecycle.has_failed) == (State.FAILED, False, True)
    lifecycle.recovered()
    assert lifecycle.ready
    lifecycle.failed("another")
    lifecycle.drain()
    assert lifecycle.state is State.DRAINING
    lifecycle.recovered()
    lifecycle.warmed()
    assert lifecycle.state is State.DRAINING


def test_silence_is_the_longest_of_all():
    clock = Clock()
    lifecycle = Lifecycle(clock)
    clock.now += 1000
    assert lifecycle.silence_seconds() == 0.0  # still warming up
    lifecycle.beat()
    clock.now += 2
    assert lifecycle.silence_seconds() == 2.0
    quiet = [0.0, 7.0]
    for index in range(2):
        lifecycle.watch(lambda index=index: quiet[index])
    assert lifecycle.silence_seconds() == 7.0
    quiet[1] = 0.0
    lifecycle.beat()
    assert lifecycle.silence_seconds() == 0.0


def state(url):
    return said(httpx.get(f"{url}/health/ready").json())


def series(url, name):
    return float(httpx.get(f"{url}/metrics").text.partition(f"\n{name} ")[2].partition("\n")[0])


SAMPLE = {"logits": [[1, 2, 3]], "params": {"temperature": 0}}


def test_a_kernel_that_fails_and_comes_back():
    with inside(Settings(self_test_seconds=0.05)) as (app, url, _):
        assert (state(url), series(url, "logitd_ready")) == ("ready", 1)
        works, app.engine.backend = app.engine.backend, object()  # nothing can be computed on that
        assert post(url, "/v1/sample", SAMPLE).status_code == 500
        until(lambda: state(url) == "failed")
        assert httpx.get(f"{url}/health/ready").headers["retry-after"] == "1"
        assert httpx.get(f"{url}/health/live").status_code == 200
        assert series(url, "logitd_ready") == 0
        until(lambda: series(url, 'logitd_self_tests_total{outcome="failed"}') >= 2)
        assert state(url) == "failed"
        app.engine.backend = works
        until(lambda: state(url) == "ready")
        assert series(url, 'logitd_self_tests_total{outcome="passed"}') == 1
        assert post(url, "/v1/sample", SAMPLE).json()["rows"][0]["token"] == 2


def test_a_failed_row_is_no_failed_kernel():
    with inside(Settings(self_test_seconds=0.05)) as (_, url, _):
        assert post(url, "/v1/sample", {"logits": [[None, None]]}).status_code == 422
        assert post(url, "/v1/sample", b"[", "application/json").status_code == 400
        assert state(url) == "ready"


def test_the_reason_of_a_failure_is_not_told():
    with inside(Settings(self_test_seconds=3600)) as (app, url, _):
        app.lifecycle.failed("secret device")
        assert "secret" not in httpx.get(f"{url}/health/ready").text


def test_the_heart_beats_and_its_lateness_is_counted():
    with inside(Settings()) as (app, url, _):
        until(lambda: series(url, "logitd_event_loop_lag_seconds_count") >= 1)
        assert app.lifecycle.silence_seconds() < 10
