"""The service that a command talks to."""

import argparse
import os

from logitd.cli.failure import CannotRun
from logitd.client import Client

_URL = "http://127.0.0.1:8000"


def add_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add --url, --uds and --timeout-seconds. The API key is not a flag, which everybody could see: LOGITD_API_KEY."""
    return [
        parser.add_argument(
            "--url",
            default=os.environ.get("LOGITD_URL") or _URL,
            help=f"where the service listens: http://…, https://… or unix:///PATH (default: LOGITD_URL, or {_URL})",
        ),
        parser.add_argument("--uds", metavar="PATH", help="the Unix domain socket it listens on, instead of --url"),
        parser.add_argument(
            "--timeout-seconds", type=float, default=30.0, metavar="S", help="how long to wait (default: %(default)g)"
        ),
    ]


def connect(options: argparse.Namespace) -> Client:
    """Return the client for these options.

    Raises:
        CannotRun: the URL, the timeout or the API key cannot be used.
    """
    if options.uds is not None:
        options.url = f"unix://{os.path.abspath(options.uds)}"  # what messages name
    try:
        return Client(options.url, timeout_seconds=options.timeout_seconds)
    except ValueError as error:
        raise CannotRun(str(error)) from error
