"""`logitd attention`: what linear attention would do to the queries, keys and values in a file."""

import argparse
from typing import TYPE_CHECKING

from logitd.cli.attention import compare, plan

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: "Commands") -> None:
    """Add the command and those below it."""
    parser = commands.add_parser(
        "attention", help="compare attention methods, or plan layers, on q, k and v in a file", allow_abbrev=False
    )
    below = parser.add_subparsers(metavar="COMMAND", required=True)
    compare.add_command(below)
    plan.add_command(below)
