"""The `logitd` command: `serve`, `sample`, `analyze`, `attention`, `verify-theory` and `info`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from logitd.cli import analyze, attention, info, sample, serve, theory
from logitd.cli.failure import CannotRun
from logitd.errors import ClientError
from logitd.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; those of the process by default.
    Returns:
        0; 1 when a row or the service failed; 2 when the command cannot be run as given.
    Raises:
        SystemExit: 0 after --help or --version, 2 for arguments that are refused.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _parse(arguments)
        status: int = options.run(options)
    except CannotRun as error:
        print(f"logitd: {error}", file=sys.stderr)
        return 2
    except ClientError as error:
        print(f"logitd: {options.url}: {error}", file=sys.stderr)
        return 1
    return status


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "logitd", description="Turn logits into tokens, and queries, keys and values into attention, over HTTP."
    )
    parser.add_argument("--version", action="version", version=f"logitd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    command = arguments[0] if arguments else None
    serve.add_command(commands, chosen=command == "serve")
    flags = sample.add_command(commands)
    analyze.add_command(commands)
    attention.add_command(commands)
    theory.add_command(commands)
    info.add_command(commands)
    params: dict[str, Any] = {}
    if command == "sample":
        arguments, params = sample.split(arguments, flags)
    return parser.parse_args(arguments, argparse.Namespace(params=params))
