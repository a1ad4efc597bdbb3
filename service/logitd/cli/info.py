"""`logitd info`: what a service says about itself."""

import argparse
import json
from typing import TYPE_CHECKING

from logitd.cli import service

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: "Commands") -> None:
    """Add the command."""
    parser = commands.add_parser(
        "info", help="print a service's versions, backends, limits and settings as JSON", allow_abbrev=False
    )
    service.add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print GET /v1/info."""
    with service.connect(options) as client:
        print(json.dumps(client.info(), indent=2, ensure_ascii=False))
    return 0
