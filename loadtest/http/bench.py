"""`make bench-service`: the service beside stock uvicorn and its peers, the same client for all.

    python -m loadtest.http.bench [--quick] [--json PATH]

All servers run at once and take turns; the figures are medians over rounds, the ratios are taken round by round.
"""

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest.http import servers
from loadtest.http.cases import Case, cases, in_memory, row
from loadtest.http.claims import judge
from loadtest.http.client import closed_loop
from loadtest.http.regions import shared
from loadtest.http.report import Figure, Report
from loadtest.kernels.machine import machine
from loadtest.kernels.report import BASELINES
from loadtest.kernels.table import CLAIMS, about, verdict

_CONNECTIONS = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit status."""
    options = _options(arguments)
    report = Report(machine())
    print(about(report.machine))
    with contextlib.ExitStack() as running:
        addresses = {
            "logitd": running.enter_context(servers.logitd("--shared-memory", "true")),
            "stock": running.enter_context(servers.bare("stock")),
            "protocol": running.enter_context(servers.bare("logitd")),
        }
        region = running.enter_context(shared(addresses["logitd"], row()))
        report.figures = measure([*cases(), in_memory(region)], addresses, *((2, 0.4) if options.quick else (9, 1.0)))
    print(*(figure.line() for figure in report.figures), sep="\n")
    report.claims = judge(report.figures)
    print(f"\nclaims, {_CONNECTIONS} connections{CLAIMS}", *map(verdict, report.claims), sep="\n")
    baseline = [] if options.quick else [BASELINES / "service.json"]
    for target in [*baseline, *map(Path, options.json)]:
        print(f"wrote {report.keep(target)}")
    return 0


def measure(asked: Sequence[Case], addresses: dict[str, tuple[str, int]], rounds: int, seconds: float) -> list[Figure]:
    """Let all cases take turns."""
    figures = [Figure(case.name, case.server, case.rows) for case in asked]
    loads = [case.load(addresses[case.server]) for case in asked]
    for turn in range(rounds + 1):
        for figure, load in zip(figures, loads, strict=True):
            result = closed_loop(load, _CONNECTIONS, seconds if turn else seconds / 4)
            if turn:  # the first round warms up
                figure.rates.append(result.rate)
                figure.latencies_seconds += result.latencies_seconds
        print(".", end="", flush=True)
    print()
    return figures


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few and short turns; this is no baseline")
    parser.add_argument("--json", action="append", default=[], metavar="PATH", help="write the figures here too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
