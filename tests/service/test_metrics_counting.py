"""How series are counted: from many threads, by row and by array alike."""

import math
import sys
import threading
import time

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from logitd.batching import Batcher, Item
from logitd.counting.cells import Cells
from logitd.counting.rows import count_rows
from logitd.counting.series import ENTROPY, LENGTH, MASS, ROWS, SERIES, SUPPORT, TOKENS, Kind
from logitd.metrics import Metrics
from logitd_kernels import RowFault, RowResult, check


@pytest.fixture
def metrics():
    return Metrics(CollectorRegistry(), ["/x"])


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def rows(count, seed):
    """Answers with everything that occurs: exact powers of two, what a head form leaves open, faults."""
    generator = np.random.default_rng(seed)
    answers = []
    for row in range(count):
        entropy = float(generator.choice([0.0, np.log(1024), 1e-3, 2.5, generator.uniform(0, 12)]))
        numbers = [entropy, entropy / 2, int(generator.choice([1, 2, 50, 126_052])), float(generator.uniform())]
        if row % 5 == 0:
            numbers[generator.integers(4)] = None
        answers.append(RowResult([1] * (row % 3 + 1), [0.0], *numbers, seed=1))
        if row % 7 == 0:
            answers[-1] = RowFault(row, "non_finite", "nan", "")
    return answers


def test_rows_count_the_same_one_by_one_and_all_at_once():
    answers = rows(500, 0)
    params = [check({"top_k": 3}), check({"temperature": 0}), check({})]
    values = [params[row // 200] for row in range(500)]
    together, apart = Cells(), Cells()
    count_rows(together, answers, values)
    for answer, own in zip(answers, values, strict=True):
        count_rows(apart, [answer], [own])
    assert together.counts == apart.counts
    assert together.counts[ROWS]["nan",] == 72
    assert set(together.counts[TOKENS]) == {("top_k",), ("greedy",), ("untruncated",)}
    for series in SERIES:
        if series.kind is Kind.HISTOGRAM:
            for labels, buckets in together.histograms[series].items():
                assert buckets[:-1] == apart.histograms[series][labels][:-1]
                assert buckets[-1] == pytest.approx(apart.histograms[series][labels][-1])


@pytest.mark.parametrize("count", [1, 100])
def test_buckets_are_inclusive_and_rounding_moves_no_power_of_two(count):
    cells = Cells()
    entropy, mass = math.log(1024.0000000000009), 1.0000001  # as sums of many floats come out
    assert math.exp(entropy) > 1024
    answer = RowResult([1], [0.0], entropy, 0.05, 1024, mass, seed=1)
    count_rows(cells, [answer] * count, [check({})] * count)
    at = SUPPORT.bounds.index(1024)
    assert cells.histograms[SUPPORT]["after_temperature",][at] == count
    assert cells.histograms[SUPPORT]["after_truncation",][at] == count
    assert cells.histograms[ENTROPY]["after_truncation",][ENTROPY.bounds.index(0.05)] == count
    taken = cells.histograms[MASS][()]
    assert (taken[0], taken[-1]) == (count, 0)


def test_exposed_buckets_are_cumulative(metrics):
    for keys in (64, 65, 1 << 20):
        metrics.attended([("exact", "short", 0.0)], keys)
    name = f"{LENGTH.name}_bucket"
    found = [value(metrics, name, algorithm="exact", le=le) for le in ("64.0", "128.0", "131072.0", "+Inf")]
    assert found == [1, 2, 2, 3]
    assert value(metrics, f"{LENGTH.name}_sum", algorithm="exact") == 64 + 65 + (1 << 20)


def test_threads_lose_nothing_while_somebody_looks(metrics):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    begin, done = threading.Barrier(5), threading.Event()

    def record():
        begin.wait()
        for _ in range(2000):
            metrics.rejected("wait")
            metrics.stages({"compute": 0.25})

    def look():
        begin.wait()
        while not done.is_set():
            seen = value(metrics, "logitd_stage_duration_seconds_count", stage="compute")
            assert seen >= looked[-1]
            looked.append(seen)

    looked = [0.0]
    threads = [threading.Thread(target=record) for _ in range(4)]
    looker = threading.Thread(target=look)
    try:
        for thread in (*threads, looker):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        looker.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(looked) > 1
    assert value(metrics, "logitd_requests_rejected_total", reason="wait") == 8000
    assert value(metrics, "logitd_stage_duration_seconds_count", stage="compute") == 8000
    assert value(metrics, "logitd_stage_duration_seconds_sum", stage="compute") == 2000


def test_of_the_examples_of_all_threads_the_last_is_exposed(metrics, monkeypatch):
    def ended(trace_id, wall_seconds):
        monkeypatch.setattr(time, "time", lambda: wall_seconds)
        metrics.request_ended("/x", 200, 0.0003, trace_id)

    def exposed():
        samples = [sample for family in metrics.registry.collect() for sample in family.samples if sample.exemplar]
        return [(one.labels["le"], one.exemplar.labels["trace_id"], one.exemplar.timestamp) for one in samples]

    other = threading.Thread(target=ended, args=("other", 2.0))
    ended("first", 1.0)
    other.start()
    other.join()
    assert exposed() == [("0.0005", "other", 2.0)]
    ended("last", 3.0)
    assert exposed() == [("0.0005", "last", 3.0)]


def test_only_batches_of_the_queue_are_its_last(metrics, monkeypatch):
    started = value(metrics, "logitd_last_batch_timestamp_seconds")
    assert started == pytest.approx(time.time(), abs=60)
    monkeypatch.setattr(time, "time", lambda: started + 100)
    metrics.batch("sample", rows=3, requests=2)  # light work, which goes on while the compute threads hang
    assert value(metrics, "logitd_last_batch_timestamp_seconds") == started
    assert value(metrics, "logitd_batch_fill_ratio_count") == 0
    metrics.batch("sample", rows=3, requests=2, release="idle", fill=0.5)
    assert value(metrics, "logitd_last_batch_timestamp_seconds") == started + 100
    assert value(metrics, "logitd_batch_fill_ratio_sum") == 0.5
    assert value(metrics, "logitd_batch_rows_sum", op="sample") == 6
    assert value(metrics, "logitd_batch_requests_sum", op="sample") == 4
    assert value(metrics, "logitd_batches_total", op="sample", release="idle") == 1


def test_a_head_that_fell_back_is_why_the_call_did(metrics):
    metrics.attended([("hybrid", "long", 0.01), ("exact", "given_up", 0.0)], 5000)
    assert value(metrics, "logitd_attention_requests_total", algorithm="mixed", reason="fallback") == 1
    assert value(metrics, "logitd_attention_heads_total", mode="hybrid", why="long") == 1


def item(key, count, row_bytes=1):
    return Item("work", key, count, row_bytes, 0.0)


@pytest.mark.parametrize(
    ("items", "release", "fill"),
    [
        ([item("a", 2), item("a", 3)], "idle", 0.5),
        ([item("a", 2), item("b", 3)], "shape_change", 0.2),
        ([item("a", 12)], "full", 1.0),
        ([item("a", 4, 30), item("a", 1, 30)], "full", 0.9),
        ([item("a", 1, 500), item("a", 1, 500)], "full", 1.0),
        ([item("a", 5, 20)], "idle", 1.0),
        ([item(None, 2), item(None, 2)], "shape_change", 0.2),
    ],
)
def test_a_batch_says_why_it_ended(items, release, fill):
    batcher = Batcher(max_rows=10, max_bytes=100)
    for one in items:
        batcher.add(one)
    batch = batcher.take(0.0)
    assert (batch.release, batch.fill) == (release, pytest.approx(fill))
