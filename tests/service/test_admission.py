"""Permits: counted in before a body is read, counted out whatever happens."""

import pytest

from logitd.admission import Admission
from logitd.errors import PayloadTooLarge, Shed
from logitd.settings import Settings


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def admission(clock):
    limits = {
        "max_inflight_requests": 3,
        "max_inflight_bytes": 1000,
        "max_body_bytes": 2000,
        "max_chunked_body_bytes": 300,
    }
    return Admission(Settings(**limits), clock)


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


def go_by(admission, clock, count, seconds):
    for _ in range(count):
        clock.now += seconds
        with admission.entered(0):
            pass


def test_who_is_shed_is_told_when_there_should_be_room(admission, clock):
    assert admission.retry_after_seconds() == 1  # nothing is known yet
    go_by(admission, clock, 20, 0.5)  # two a second
    with admission.entered(0), admission.entered(0), admission.entered(0):
        assert admission.retry_after_seconds() == 2  # three are inside: a second and a half
        clock.now += 60
        assert admission.retry_after_seconds() == 1  # nobody has left for a minute: nothing is known any more


def test_who_could_not_be_answered_in_time_does_not_come_in(admission, clock):
    go_by(admission, clock, 20, 0.5)
    with admission.entered(0, 0.01), admission.entered(0):
        with pytest.raises(Shed), admission.entered(0, 1.0):  # a second for those inside, and no time for itself
            pass
        with admission.entered(0, 2.0):
            pass
    with admission.entered(0, 0.01):  # nobody is inside
        pass
