"""Run a load profile against a logitd server, or against one that is started for it.

    python -m loadtest.http.profiles steady
    python -m loadtest.http.profiles ramp --url http://10.0.0.5:8000 --slo p99=50ms --slo knee=300
    python -m loadtest.http.profiles mine.toml --seconds 60

Exit status: 0 all demands were kept, 1 one was not, 2 it could not be run. An interrupted run tells what it had.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from loadtest.http.profiles.page import page
from loadtest.http.profiles.plots import charts
from loadtest.http.profiles.prepare import Server, about, kinds_of, running, started
from loadtest.http.profiles.profile import Profile, load, names
from loadtest.http.profiles.report import content, written
from loadtest.http.profiles.run import Client, Outcome, run
from loadtest.http.profiles.slo import parsed
from loadtest.http.profiles.terminal import Progress, table

from logitd import LogitdError

_OUT = Path("build") / "loadtest"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _options(arguments)
    try:
        profile, demands = _profile(options), [parsed(text) for text in options.slo]
        profile.demanding(demands)  # what makes no sense is said before anything is started
        options.out.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            if options.url is None:
                server = stack.enter_context(started(profile))
            else:
                server = running(options.url, options.admin_url, options.api_key)
            known = {"time": time.strftime("%Y-%m-%d %H:%M:%S %z"), **about(server), "cores here": os.cpu_count()}
            if server.admin is None:
                profile = profile.without("probes")
            outcome = _outcome(options, profile.demanding(demands), server)
    except (ValueError, OSError, ImportError, RuntimeError, LogitdError) as error:
        print(f"loadtest: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before it began: what a run had by then is told
        return 130
    report = content(outcome, known | ({"cut short": "yes"} if outcome.cut_short else {}))
    print(*table(report), *_kept(report, outcome, options.out), sep="\n")
    return 0 if report["held"] else 1


def _kept(report: dict[str, Any], outcome: Outcome, folder: Path) -> list[str]:
    """Write the report into a folder; returns what to say of it."""
    data, shown = (folder / f"{report['profile']}.{kind}" for kind in ("json", "html"))
    written(report, data)
    shown.write_text(page(report, charts(outcome)))
    return [f"wrote {data}", f"wrote {shown}"]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="loadtest", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("profile", help=f"{', '.join(names())}, or a TOML file")
    parser.add_argument("--url", help="of a running server, http://… or unix:///PATH; default: one is started")
    parser.add_argument("--admin-url", help="of its admin port; default: the port after the one of --url")
    parser.add_argument("--api-key", default=os.environ.get("LOGITD_API_KEY"), help="default: LOGITD_API_KEY")
    parser.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar="[KIND:|PHASE:]METRIC=LIMIT",
        help="p99=50ms, errors=0.1%%, goodput=90%%, …",
    )
    parser.add_argument("--seconds", type=float, help="how long all phases last")
    parser.add_argument("--rate", type=float, help="requests a second, of a profile that has one rate")
    parser.add_argument("--capacity", type=float, help="requests a second that load 1 means; default: measured first")
    parser.add_argument("--connections", type=int, default=2048, help="at most (default: %(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=40.0, metavar="SECONDS", help="patience (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=_OUT, metavar="FOLDER", help="for the reports (default: build/loadtest)"
    )
    return parser.parse_args(arguments)


def _profile(options: argparse.Namespace) -> Profile:
    chosen = load(options.profile)
    chosen = chosen if options.seconds is None else chosen.lasting(options.seconds)
    return chosen if options.rate is None else chosen.at_rate(options.rate)


def _outcome(options: argparse.Namespace, profile: Profile, server: Server) -> Outcome:
    client = Client(server.target, server.told_at, options.connections, options.timeout)
    with kinds_of(profile, server) as (chosen, kinds), contextlib.closing(Progress(chosen.seconds)) as progress:
        gc.freeze()  # what is prepared stays: looking through it again and again would be this client's own latency
        return _loop()(run(chosen, kinds, client, options.capacity, progress))


def _loop() -> Callable[[Coroutine[Any, Any, Outcome]], Outcome]:
    """Return what runs a coroutine: uvloop's, where it is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


if __name__ == "__main__":
    sys.exit(main())
