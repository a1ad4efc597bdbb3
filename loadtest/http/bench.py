"""`make bench-service`: the service beside stock uvicorn and its peers, the same client for all.

    python -m loadtest.http.bench [--peers] [--quick] [--json PATH]

All servers of ours run at once and take turns, then each peer beside logitd; the figures are medians over rounds, the
ratios are taken round by round. Peers that are not set up are left out.
"""

import argparse
import contextlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from loadtest.http import servers, turns
from loadtest.http.cases import Case, cases, in_memory, row
from loadtest.http.claims import judge
from loadtest.http.client import NotAnsweredError, closed_loop
from loadtest.http.regions import shared
from loadtest.http.report import Figure, Report
from loadtest.kernels.answers import WrongAnswerError
from loadtest.kernels.machine import machine
from loadtest.kernels.report import BASELINES
from loadtest.kernels.table import CLAIMS, about, verdict
from loadtest.peers.beside import beside
from loadtest.peers.servers import PEERS, Peer

_CONNECTIONS = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks; returns the exit status."""
    options = _options(arguments)
    if options.peers:
        set_up()
    pace = (2, 0.4) if options.quick else (9, 1.0)
    report = Report(machine())
    print(about(report.machine))
    with contextlib.ExitStack() as running:
        addresses = {
            "logitd": running.enter_context(servers.logitd("--shared-memory", "true")),
            "stock": running.enter_context(servers.bare("stock")),
            "protocol": running.enter_context(servers.bare("logitd")),
        }
        region = running.enter_context(shared(addresses["logitd"], row()))
        report.figures = measure([*cases(), in_memory(region)], addresses, *pace)
        for peer in PEERS:
            report.peers[peer.name] = measured(peer, addresses["logitd"], pace, report.figures)
    print(*(figure.line() for figure in report.figures), sep="\n")
    print("\npeers", *(f"  {name}: {what}" for name, what in report.peers.items()), sep="\n")
    report.claims = judge(report.figures)
    print(f"\nclaims{CLAIMS}", *map(verdict, report.claims), sep="\n")
    baseline = [] if options.quick else [BASELINES / "service.json"]
    for target in [*baseline, *map(Path, options.json)]:
        print(f"wrote {report.keep(target)}")
    return 0


def set_up() -> None:
    """Install the peers that are missing."""
    for peer in PEERS:
        if not peer.environment.ready:
            print(f"setting up {peer.release} in {peer.environment.folder}", flush=True)
            peer.environment.set_up()


def measure(asked: Sequence[Case], addresses: dict[str, tuple[str, int]], rounds: int, seconds: float) -> list[Figure]:
    """Let all cases take turns."""
    figures = [Figure(case.name, case.server, case.rows, _CONNECTIONS) for case in asked]
    runs = [partial(closed_loop, case.load(addresses[case.server]), _CONNECTIONS) for case in asked]
    turns.take(list(zip(figures, runs, strict=True)), rounds, seconds)
    return figures


def measured(peer: Peer, ours: tuple[str, int], pace: tuple[int, float], figures: list[Figure]) -> str:
    """Measure a peer, which adds to the figures; returns what it was, or why there is nothing of it."""
    if not peer.environment.ready:
        return "absent: not set up (--peers does it)"
    try:
        figures += beside(peer, ours, *pace)
    except (servers.NotStartedError, NotAnsweredError, OSError, WrongAnswerError) as error:
        return f"left out: {error}"
    return peer.release


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="set up the peers that are missing first: some gigabytes")
    parser.add_argument("--quick", action="store_true", help="few and short turns; this is no baseline")
    parser.add_argument("--json", action="append", default=[], metavar="PATH", help="write the figures here too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
