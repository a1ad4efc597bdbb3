"""The `logitd` command: `serve`, `sample`, `info`."""

import argparse
import sys
from collections.abc import Sequence

from logitd.cli import info, sample, serve
from logitd.version import __version__

_OK, _FAILED, _USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; those of the process by default.
    Returns:
        0, or 1 when a row or the service failed, or 2 when the command cannot be run as given.
    Raises:
        SystemExit: 0 after --help and --version, 2 for arguments that argparse refuses.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser("logitd", description="Turn logits into tokens, over HTTP.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"logitd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    try:
        serve.add_command(commands, chosen=arguments[:1] == ["serve"])
    except ServerExtraMissing
