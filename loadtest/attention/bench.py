"""`make bench-attention`: what attention costs, exact and linear, beside torch's.

    python -m loadtest.attention.bench [--quick] [--full] [--json PATH]

The tests of what is measured run first, then every answer is compared with exact attention; on red there is no figure.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from loadtest.attention import answers, claims, decode, memory, table
from loadtest.attention.crossover import crossovers
from loadtest.attention.figures import measure
from loadtest.attention.methods import absent
from loadtest.attention.report import Report
from loadtest.attention.work import LENGTHS, Work
from loadtest.kernels.answers import WrongAnswerError
from loadtest.kernels.gate import red
from loadtest.kernels.machine import machine
from loadtest.kernels.report import BASELINES
from loadtest.kernels.table import CLAIMS, about, absences, verdict
from loadtest.kernels.timing import Budget

_TESTED = ("exact", "fused", "hybrid", "hybrid_laws", "moment", "moment_state", "linear", "baselines", "streams")
TESTS = tuple(f"tests/kernels/attention/test_{name}.py" for name in _TESTED)
_USUAL, _FULL = (Budget(rounds=25, least=1.0, most=most) for most in (32.0, 400.0))
_QUICK = Budget(rounds=3, least=0.0, most=20.0)
_QUICK_TO = 8192
_REMEMBERED = ("moment", "hybrid")  # whose memory is measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit status."""
    options = _options(arguments)
    print("the tests of what is measured …", flush=True)
    failures = red(TESTS)
    if failures:
        print(f"{failures}\nRed: no figures.")
        return 1
    try:
        _bench(options)
    except WrongAnswerError as wrong:
        print(f"\n{wrong}\nA wrong answer has no speed: no figures.")
        return 1
    return 0


def _bench(options: argparse.Namespace) -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    report = Report(machine())
    print(about(report.machine))
    print(absences({**absent(), **memory.absent()}))
    _measure(report, options)
    report.crossovers = crossovers(report.figures)
    print(table.crossovers(report.crossovers))
    report.claims = claims.judge(report.figures, report.curves)
    print(f"\nclaims, on one thread{CLAIMS}", *map(verdict, report.claims), sep="\n")
    baseline = [] if options.quick else [BASELINES / "attention.json"]
    for target in [*baseline, *map(Path, options.json)]:
        for path in report.keep(target):
            print(f"wrote {path}")
    print(f"{time.perf_counter() - start:.0f} s")


def _measure(report: Report, options: argparse.Namespace) -> None:
    """Fill in figures and curves, printing as it goes."""
    budget = _QUICK if options.quick else _FULL if options.full else _USUAL
    lengths = [length for length in LENGTHS if length <= _QUICK_TO or not options.quick]
    masks = [[Work(length, causal) for length in lengths] for causal in (False, True)]
    print("every answer beside exact attention …", flush=True)
    errors = answers.check([work for works in masks for work in works], options.full)
    for works in masks:
        figures, curves = measure(works, budget, errors, options.full)
        report.figures += figures
        report.curves += curves
        print(f"{table.figures(figures)}\n{table.errors(figures)}", flush=True)
    if not memory.absent():
        report.curves += memory.curves(_REMEMBERED, lengths)
    print(table.growth(report.curves), flush=True)
    steps = decode.curves([tokens for tokens in decode.TOKENS if tokens <= lengths[-1]], budget)
    report.curves += steps
    print(table.decode(steps), flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few turns, up to 8,192 keys; this is no baseline")
    parser.add_argument("--full", action="store_true", help="exact attention beyond 8,192 keys too: minutes more")
    parser.add_argument("--json", action="append", default=[], metavar="PATH", help="write the figures here too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
