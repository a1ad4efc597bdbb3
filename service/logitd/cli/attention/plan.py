"""`logitd attention plan`: which heads of which layers may be linear, as a document that /v1/attention takes."""

import argparse
from typing import TYPE_CHECKING

from logitd.cli import service
from logitd.cli.attention import fields
from logitd.cli.attention.source import read_layers
from logitd.cli.failure import CannotRun
from logitd.cli.text import json_text

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: "Commands") -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan", help="a mode for every head of several layers, as JSON to be sent as `plan`", allow_abbrev=False
    )
    parser.add_argument(
        "file", metavar="FILE", help=".safetensors or .npz with 0.q, 0.k, 0.v, 1.q …; - for standard input"
    )
    service.add_arguments(parser)
    fields.add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan.

    Raises:
        CannotRun: the file cannot be sent.
        ClientError: the service cannot be reached, or refuses.
    """
    layers = read_layers(options.file)
    with service.connect(options) as client:
        try:
            plan = client.attention_plan(layers, **fields.given(options))
        except (TypeError, ValueError) as error:
            raise CannotRun(str(error)) from error
    print(json_text(plan))
    return 0
