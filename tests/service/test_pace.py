"""How long who comes now will wait, told from how fast the queue moves."""

from logitd.pace import Pace


def test_the_rate_at_which_work_ends_while_other_work_waits():
    pace = Pace()
    pace.waits(100.0)
    assert pace.seconds(50, 100.0) is None
    for tenth in range(20):
        pace.waits(100.0 + tenth / 10)
        pace.ended(1, 100.1 + tenth / 10)
    assert round(pace.seconds(50, 102.0), 6) == 5.0  # twenty in two seconds


def test_what_ends_while_nobody_waits_says_nothing():
    pace = Pace()
    pace.ended(100, 1.0)
    pace.waits(2.0)
    assert pace.seconds(10, 3.0) is None
    pace.ended(10, 3.0)
    assert pace.seconds(10, 3.0) == 1.0
    pace.waits_no_more()
    pace.waits(4.0)
    assert pace.seconds(10, 5.0) is None


def test_only_the_last_seconds_count():
    pace = Pace()
    pace.waits(0.0)
    pace.ended(1000, 0.5)
    pace.ended(10, 9.0)
    assert pace.seconds(10, 10.0) == 5.0
    assert pace.seconds(10, 20.0) is None
    pace.ended(5000, 20.0)  # more than are remembered: since the first of those
    assert pace.seconds(512, 21.0) == 1.0
