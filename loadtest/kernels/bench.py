"""`make bench`: what sampling a row costs, beside the floor under it and the peers around it.

    python -m loadtest.kernels.bench [--quick] [--only PATTERN]… [--json PATH] [--base REV]

The tests of what is measured run first; on red there is no figure.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from loadtest.kernels import claims, ours, peers, rows, scaling, table
from loadtest.kernels.answers import WrongAnswerError
from loadtest.kernels.cases import Work, all_cases
from loadtest.kernels.compare import compare
from loadtest.kernels.figures import Figure, measure
from loadtest.kernels.gate import red
from loadtest.kernels.machine import machine
from loadtest.kernels.only import Only
from loadtest.kernels.report import Report
from loadtest.kernels.timing import Budget

_POOL = 8  # rows that the calls of one measurement cycle through: 4 MB
_FULL, _QUICK = Budget(), Budget(rounds=8, least=0.1, most=0.4)
_CLAIM, _CURVE = Budget(rounds=40, least=1.0, most=6.0), Budget(rounds=10, least=1.0, most=6.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit status."""
    options = _options(arguments)
    budget = _QUICK if options.quick else _FULL
    print("the tests of what is measured …", flush=True)
    failures = red()
    if failures:
        print(f"{failures}\nRed: no figures.")
        return 1
    try:
        if options.base:
            return compare(options.base, options.only, budget)
        _bench(options, budget)
    except WrongAnswerError as wrong:
        print(f"\n{wrong}\nA wrong answer has no speed: no further figures.")
        return 1
    return 0


def _bench(options: argparse.Namespace, budget: Budget) -> None:
    start = time.perf_counter()
    report = Report(machine())
    print(table.about(report.machine))
    print(table.absences({**report.machine["absent"], **peers.absent()}))
    for threads, batch in ((1, 1),) if options.quick else ((1, 1), (ours.all_threads(), _POOL)):
        for kind in rows.KINDS:
            report.figures += _kind(kind, threads, batch, budget, options.only)
    if options.only.section("claims"):
        print(f"\nclaims, on one thread{table.CLAIMS}")
        for claim in claims.CLAIMS:
            report.claims.append(claims.judge(claim, budget if options.quick else _CLAIM))
            print(table.verdict(report.claims[-1]), flush=True)
    if options.only.section("scaling"):
        print("\nscaling of a call on one thread: the slope of log(time) over log(size)", flush=True)
        report.curves = scaling.curves(budget if options.quick else _CURVE)
        print("\n".join(table.curve(curve) for curve in report.curves))
    whole = not options.quick and not options.only.patterns
    for path in report.keep(options.json, whole):
        print(f"wrote {path}")
    print(f"{time.perf_counter() - start:.0f} s")


def _kind(kind: str, threads: int, batch: int, budget: Budget, only: Only) -> list[Figure]:
    """Measure every case on one kind of rows, printing as it goes."""
    figures: list[Figure] = []
    for case in all_cases():
        if not only.case(case.name, kind):
            continue
        work = Work.of(kind, case, rows.pool(kind, _POOL), batch, threads)
        found, wrong = measure(work, budget, only)
        if found and not figures:
            print(table.heading(work))
        for line in [*table.lines(found), *wrong]:
            print(line, flush=True)
        figures += found
    for line in table.costs(figures):
        print(line, flush=True)
    return figures


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one thread, short measurements")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help=Only.__doc__)
    parser.add_argument("--json", metavar="PATH", help="write the figures; a whole run becomes the baseline anyway")
    parser.add_argument("--base", metavar="REV", help="compare the working tree with a commit instead")
    options = parser.parse_args(arguments)
    options.only = Only(tuple(options.only))
    return options


if __name__ == "__main__":
    sys.exit(main())
