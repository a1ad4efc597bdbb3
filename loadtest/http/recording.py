"""What recording costs: of one request, of one log line, and of each row beside sampling it.

    python -m loadtest.http.recording [--quick]

Times are CPU time, on one thread. Recording a batch and sampling it take turns, and their ratio is taken turn by
turn. Exit status 1 where a request costs more than its budget, or a row of a large vocabulary more than its share.
"""

import argparse
import io
import logging
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from prometheus_client import CollectorRegistry

from logitd.log import JsonFormatter
from logitd.metrics import Metrics
from logitd_kernels import DenseRows, check, pick, sample, set_threads

_REQUEST_BUDGET_US = 12.0
_ROW_SHARE = 0.02
_LARGE = 126_052  # the vocabulary of the demo's model
_ENDPOINT = "/v1/sample"
_STAGES = {"read": 2e-5, "decode": 3e-5, "queue": 1e-6, "compute": 2e-4, "encode": 1e-5}
_PARAMS = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "seed": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.http.recording", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns")
    turns = 5 if parser.parse_args(arguments).quick else 25
    torch.set_num_threads(1)
    set_threads(1)
    metrics = Metrics(CollectorRegistry(), [_ENDPOINT])
    request_us = _request(metrics, turns)
    print(f"one request, all its recording      {request_us:8.2f} µs   budget {_REQUEST_BUDGET_US:g} µs")
    line, unlogged = _line(turns)
    print(f"one request's log line              {line:8.2f} µs   {unlogged:.2f} µs where it is not logged")
    fits = request_us <= _REQUEST_BUDGET_US
    for rows, vocabulary in ((1, _LARGE), (8, _LARGE), (64, _LARGE), (256, 32_000), (64, 1000)):
        recording, share = _rows(metrics, rows, vocabulary, turns)
        print(f"a row of {rows:3d}, V = {vocabulary:7,d}           {recording:8.2f} µs   {share:.2%} of sampling it")
        fits = fits and (share <= _ROW_SHARE or vocabulary < _LARGE)
    return 0 if fits else 1


def _request(metrics: Metrics, turns: int) -> float:
    """Return the microseconds of everything that a request with one row records."""
    values = [check(_PARAMS)]
    answers = sample(DenseRows(torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))), values)

    def record() -> None:
        metrics.request_began()
        metrics.batch("sample", 1, 1)
        metrics.sampled(answers, values)
        metrics.stages(_STAGES)
        metrics.request_ended(_ENDPOINT, 200, 3e-4)
        metrics.answered(513_000, 300, 2e-5)

    return min(_seconds(record, 500) for _ in range(4 * turns)) * 1e6


def _line(turns: int) -> tuple[float, float]:
    """Return the microseconds of a log line into memory, and of the question whether to log it."""
    log = logging.Logger("logitd.request", logging.INFO)
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    fields = {"method": "POST", "path": _ENDPOINT, "status": 200, "seconds": 0.000312}
    line = min(_seconds(lambda: log.info("request", extra=fields), 500) for _ in range(turns))
    log.setLevel(logging.WARNING)
    return line * 1e6, min(_seconds(lambda: log.isEnabledFor(logging.INFO), 500) for _ in range(turns)) * 1e6


def _rows(metrics: Metrics, rows: int, vocabulary: int, turns: int) -> tuple[float, float]:
    """Return the microseconds of recording a row, and the share that they are of sampling it."""
    logits = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(rows)) * 3
    values, backend = [check(_PARAMS)] * rows, pick("auto")
    answers = sample(DenseRows(logits), values, backend=backend)
    recordings, shares = [], []
    for _ in range(turns):
        sampling = _seconds(lambda: sample(DenseRows(logits), values, backend=backend), max(1, 64 // rows))
        recording = _seconds(lambda: metrics.sampled(answers, values), max(10, 2000 // rows))
        recordings.append(recording / rows * 1e6)
        shares.append(recording / sampling)
    return statistics.median(recordings), statistics.median(shares)


def _seconds(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of one call."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


if __name__ == "__main__":
    raise SystemExit(main())
