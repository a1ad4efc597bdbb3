"""Permits: counted in before a body is read, counted out whatever happens."""

import contextlib

import pytest

from logitd.admission import Admission
from logitd.errors import PayloadTooLarge, Shed
from logitd.settings import Settings


class World:
    now = 100.0


@pytest.fixture
def world():
    return World()


@pytest.fixture
def admission(world):
    limits = {
        "max_inflight_requests": 3,
        "max_inflight_bytes": 1000,
        "max_body_bytes": 2000,
        "max_chunked_body_bytes": 300,
    }
    return Admission(Settings(**limits), lambda: world.now)


def test_requests_are_counted_in_and_out(admission):
    with admission.entered(10), admission.entered(20):
        assert (admission.requests, admission.bytes) == (2, 30)
    assert (admission.requests, admission.bytes) == (0, 0)
    with pytest.raises(RuntimeError, match="inside"), admission.entered(10):
        raise RuntimeError("inside")
    assert (admission.requests, admission.bytes) == (0, 0)


def test_too_many_requests_are_shed(admission):
    with admission.entered(0), admission.entered(0), admission.entered(0):
        with pytest.raises(Shed), admission.entered(0):
            pass
        assert admission.requests == 3
    with admission.entered(0):
        pass


def test_too_many_bytes_are_shed_and_a_chunked_body_counts_as_it_may_grow(admission):
    with admission.entered(800), pytest.raises(Shed), admission.entered(None):
        pass
    with admission.entered(700), admission.entered(None):
        assert admission.bytes == 1000


def test_a_body_that_alone_is_more_than_all_may_have_comes_in_alone(admission):
    with admission.entered(2000), pytest.raises(Shed), admission.entered(1):
        pass
    with pytest.raises(PayloadTooLarge, match="at most 2000 bytes, 2001"), admission.entered(2001):
        pass


def test_a_body_that_unpacks_counts_for_what_it_becomes(admission):
    with admission.entered(400):
        with admission.entered(10) as permit:
            permit.hold(600)
            assert admission.bytes == 1000
            with pytest.raises(Shed) as shed:
                permit.hold(601)
            assert (shed.value.reason, admission.bytes) == ("bytes_budget", 1000)
            permit.hold(50)
            assert admission.bytes == 450
        assert admission.bytes == 400
    with admission.entered(10) as permit:
        permit.hold(1900)  # alone it may have as many as it likes
        assert admission.bytes == 1900
    assert admission.bytes == 0


def test_who_is_shed_is_told_of_what_there_is_too_much(admission):
    with admission.entered(0), admission.entered(900), pytest.raises(Shed) as shed, admission.entered(200):
        pass
    assert (shed.value.retry_after_seconds, shed.value.reason) == (1, "bytes_budget")
    with admission.entered(0), admission.entered(0), admission.entered(0):
        with pytest.raises(Shed) as shed, admission.entered(0):
            pass
        assert shed.value.reason == "queue_full"


@pytest.fixture
def roomy(world):
    return Admission(Settings(), lambda: world.now)


@contextlib.contextmanager
def competing(admission, count):
    with contextlib.ExitStack() as inside:
        for _ in range(count):
            inside.enter_context(admission.entered(0)).compete()
        yield


def answered(admission, world, count, seconds):
    for _ in range(count):
        with admission.entered(0) as permit:
            permit.compete()
            world.now += seconds


def test_who_could_not_be_answered_in_time_does_not_come_in(roomy, world):
    with competing(roomy, 10):
        answered(roomy, world, 20, 0.5)  # two a second, in a crowd
        assert roomy.competing == 10
        assert roomy.retry_after_seconds() == 5
        with pytest.raises(Shed) as shed, roomy.entered(0, 9.0):  # five seconds for those ten, and as much for itself
            pass
        assert (shed.value.reason, shed.value.retry_after_seconds) == ("wait", 5)
        with roomy.entered(0, 11.0):
            pass
    with roomy.entered(0, 0.01):  # the crowd is gone
        pass
    assert roomy.competing == 0


def test_few_are_no_crowd(roomy, world):
    """Two answers a second, because nobody asks more often."""
    answered(roomy, world, 50, 0.5)
    with competing(roomy, 7), roomy.entered(0, 0.01):
        pass


def test_who_has_not_sent_a_body_is_not_waited_for(roomy, world):
    with contextlib.ExitStack() as stalled:
        for _ in range(100):
            stalled.enter_context(roomy.entered(0))
        answered(roomy, world, 50, 0.5)
        with roomy.entered(0, 0.01):
            pass


def test_what_fails_tells_nothing_of_the_pace(roomy, world):
    def fail():
        with roomy.entered(0) as permit:
            permit.compete()
            world.now += 0.5
            raise RuntimeError

    with competing(roomy, 10):
        for _ in range(20):
            with pytest.raises(RuntimeError):
                fail()
        with roomy.entered(0, 0.01):
            pass
