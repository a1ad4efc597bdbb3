"""`logitd attention compare`: every method on the tensors in a file, and what to use for each head."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from logitd.cli import service
from logitd.cli.attention import fields, plot
from logitd.cli.attention.progress import Bar
from logitd.cli.attention.source import read_call
from logitd.cli.attention.table import as_tables
from logitd.cli.failure import CannotRun
from logitd.cli.text import json_text

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: "Commands") -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compare", help="how wrong each method is on q, k and v, what it costs, what to use", allow_abbrev=False
    )
    parser.add_argument("file", metavar="FILE", help=".safetensors or .npz with q, k and v; - for standard input")
    service.add_arguments(parser)
    fields.add_arguments(parser)
    parser.add_argument(
        "--feature-dim",
        action="append",
        type=int,
        dest="feature_dims",
        metavar="N",
        help="features a head to try; may be given again (2, 4 and 8 times d)",
    )
    parser.add_argument("--plot", metavar="OUT", help="draw error against cost: .png, .svg, .pdf (extra: plot)")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the comparison, and draw it if asked.

    Raises:
        CannotRun: the file cannot be sent, or the plot not be written.
        ClientError: the service cannot be reached, or refuses.
    """
    call = read_call(options.file)
    sent = fields.given(options)
    if options.feature_dims:
        sent["feature_dims"] = options.feature_dims
    figure = plot.new_figure(options.plot) if options.plot else None
    with service.connect(options) as client, Bar() as bar:
        try:
            comparison = client.attention_compare(**call, progress=bar.tell, **sent)
        except (TypeError, ValueError) as error:
            raise CannotRun(str(error)) from error
    print(json_text(asdict(comparison)) if options.json else as_tables(comparison))
    if figure is not None:
        plot.draw(figure, comparison, options.plot)
    return 0
