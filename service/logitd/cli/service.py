"""The service that a command talks to."""

import argparse

from logitd.cli.failure import CannotRun
from logitd.client import Client


def add_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add --url and --timeout-seconds."""
    return [
        parser.add_argument(
            "--url", default="http://127.0.0.1:8000", help="where the service listens (default: %(default)s)"
        ),
        parser.add_argument(
            "--timeout-seconds", type=float, default=30.0, metavar="S", help="how long to wait (default: %(default)g)"
        ),
    ]


def connect(options: argparse.Namespace) -> Client:
    """Return the client for these options.

    Raises:
        CannotRun: the URL or the timeout cannot be used.
    """
    try:
        return Client(options.url, timeout_seconds=options.timeout_seconds)
    except ValueError as error:
        raise CannotRun(str(error)) from error
