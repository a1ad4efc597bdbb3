"""The queue: random schedules under a clock of their own."""

import random

import pytest

from logitd.batching import Batcher, Item


def test_work_of_one_key_shares_a_batch_and_other_work_waits_its_turn():
    batcher = Batcher(8, 1 << 20)
    items = [Item(name, key, rows, 4, 0.0) for name, key, rows in (("a", "x", 2), ("b", "y", 1), ("c", "x", 3))]
    for item in items:
        batcher.add(item)
    first, second = batcher.take(0.0), batcher.take(0.0)
    assert [(part.item.work, part.start, part.stop) for part in first.parts] == [("a", 0, 2), ("c", 0, 3)]
    assert [part.item.work for part in second.parts] == ["b"]
    assert not batcher.take(0.0).parts
    assert (len(batcher), batcher.rows, batcher.bytes, batcher.oldest()) == (0, 0, 0, None)


def test_a_large_request_is_handed_out_in_parts_between_the_others():
    batcher = Batcher(64, 100)
    large = Item("large", "x", 5, 50, 0.0)
    batcher.add(large)
    served = []
    for turn in range(6):
        batcher.add(Item(f"small {turn}", "y", 1, 1, float(turn)))
        served.append([(part.item.work, part.stop - part.start) for part in batcher.take(float(turn)).parts])
    assert served[0] == [("large", 2)]
    assert [batch[0][0] for batch in served] == ["large", "small 0", "large", "small 2", "large", "small 4"]
    assert served[4] == [("large", 1)]


def test_a_row_larger_than_the_budget_goes_alone():
    batcher = Batcher(4, 10)
    batcher.add(Item("a", "x", 2, 100, 0.0))
    batcher.add(Item("b", "x", 1, 1, 0.0))
    assert [(part.start, part.stop) for part in batcher.take(0.0).parts] == [(0, 1)]


def test_work_without_a_key_is_alone():
    batcher = Batcher(4, 10)
    for name in "ab":
        batcher.add(Item(name, None, 1, 1, 0.0))
    assert [len(batcher.take(0.0).parts) for _ in range(3)] == [1, 1, 0]


def test_what_is_too_late_is_told_and_not_handed_out():
    batcher = Batcher(1, 10)
    late, half = Item("late", "x", 1, 1, 0.0, deadline=1.0), Item("half", "x", 2, 1, 0.0, deadline=2.0)
    batcher.add(half)
    assert [part.item for part in batcher.take(0.5).parts] == [half]
    batcher.add(late)
    batch = batcher.take(2.0)
    assert batch.parts == []
    assert set(map(id, batch.expired)) == {id(late), id(half)}
    assert (len(batcher), batcher.rows, batcher.bytes) == (0, 0, 0)


def test_removing_twice_tells_so():
    batcher = Batcher(4, 10)
    item = Item("a", "x", 3, 2, 0.0)
    batcher.add(item)
    assert batcher.remove(item)
    assert not batcher.remove(item)
    assert batcher.bytes == 0


class Schedule:
    """One random run: work comes, is taken, is given up; every rule is checked on the way."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.max_rows, self.max_bytes = self.random.randint(1, 16), self.random.randint(1, 400)
        self.batcher = Batcher(self.max_rows, self.max_bytes)
        self.now, self.known, self.turns, self.handed = 0.0, [], {}, {}
        self.dropped = set()

    def run(self, steps):
        for _ in range(steps):
            self.now += self.random.random()
            self.random.choice((self.add, self.add, self.take, self.take, self.remove))()
        while self.waiting():
            self.take()
        for item in self.known:
            rows = [row for start, stop in self.handed[id(item)] for row in range(start, stop)]
            assert rows == sorted(set(rows))
            assert len(rows) == item.rows or id(item) in self.dropped
        assert (len(self.batcher), self.batcher.rows, self.batcher.bytes) == (0, 0, 0)

    def waiting(self):
        return [item for item in self.known if item.left and id(item) not in self.dropped]

    def add(self):
        deadline = self.now + 3 * self.random.random() if self.random.random() < 0.2 else None
        key = self.random.choice(("x", "y", None))
        item = Item(key, key, self.random.randint(1, 30), self.random.randint(0, 60), self.now, deadline)
        self.turns[id(item)] = len(self.waiting())
        self.known.append(item)
        self.handed[id(item)] = []
        self.batcher.add(item)

    def remove(self):
        if self.known:
            item = self.random.choice(self.known)
            there = bool(item.left) and id(item) not in self.dropped
            assert self.batcher.remove(item) == there
            if there:
                self.dropped.add(id(item))

    def take(self):
        before = self.waiting()
        batch = self.batcher.take(self.now)
        for item in batch.expired:
            assert item.deadline <= self.now
            self.dropped.add(id(item))
        live = [item for item in before if id(item) not in self.dropped]
        assert bool(batch.parts) == bool(live)  # never idle while there is work
        sizes = [(part.stop - part.start, part.item.row_bytes) for part in batch.parts]
        assert batch.rows == sum(count for count, _ in sizes) <= self.max_rows
        assert sum(count * size for count, size in sizes) <= self.max_bytes or batch.rows == 1
        assert len({part.item.key for part in batch.parts}) <= 1
        served = {id(part.item) for part in batch.parts}
        for part in batch.parts:
            assert part.item.deadline is None or part.item.deadline > self.now
            assert id(part.item) not in self.dropped
            self.handed[id(part.item)].append((part.start, part.stop))
        for item in live:
            if id(item) not in served and not self.handed[id(item)]:
                self.turns[id(item)] -= 1
                assert self.turns[id(item)] >= 0  # served before each that was there has had one turn more


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules(seed):
    for run in range(10):
        Schedule(seed * 10 + run).run(40)


@pytest.mark.long
def test_a_hundred_thousand_random_schedules():
    for seed in range(100_000):
        Schedule(seed).run(30)
