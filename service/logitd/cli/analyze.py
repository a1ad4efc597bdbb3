"""`logitd analyze`: the logits in a file as Boltzmann distributions over temperatures."""

import argparse
from typing import TYPE_CHECKING

from logitd.cli import service
from logitd.cli.analyze_plot import draw
from logitd.cli.analyze_text import as_json, as_text
from logitd.cli.attention.plot import new_figure
from logitd.cli.failure import CannotRun
from logitd.cli.source import one_row, read
from logitd.client import Head
from logitd.client.analyze_call import Temperatures

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_SWEEP = "0.2:2:0.1"


def add_command(commands: "Commands") -> None:
    """Add the command."""
    parser = commands.add_parser(
        "analyze", help="log Z, energies, entropy and heat capacity of the logits in a file", allow_abbrev=False
    )
    parser.add_argument("file", metavar="FILE", help=".npy, .safetensors or JSON; - for standard input")
    service.add_arguments(parser)
    parser.add_argument(
        "--sweep",
        type=_temperatures,
        default=_SWEEP,
        metavar="T",
        help="temperatures: FROM:TO:STEP with both ends, or some with commas between (default: %(default)s)",
    )
    parser.add_argument("--entropy", type=float, metavar="H", help="find the temperature of this entropy, in nats")
    parser.add_argument("--mass", type=float, metavar="P", help="count the likeliest tokens that hold this probability")
    parser.add_argument("--row", type=int, metavar="N", help="only this row of the file, the first is 0")
    parser.add_argument("--plot", metavar="OUT", help="draw the sweep: .png, .svg, .pdf (extra: plot)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a table and the entropy curve of each row, and draw them if asked; 1 if any row failed.

    Raises:
        CannotRun: the file or the arguments cannot be sent, or the plot not be written.
        ClientError: the service cannot be reached, or refuses.
    """
    logits = read(options.file, None).logits
    if isinstance(logits, Head):
        raise CannotRun(f"{options.file}: analyze needs whole rows, not a head form")
    if options.row is not None:
        logits = one_row(logits, options.row, options.file)
    figure = new_figure(options.plot) if options.plot else None
    with service.connect(options) as client:
        try:
            result = client.analyze(logits, options.sweep, entropy=options.entropy, mass=options.mass)
        except (TypeError, ValueError) as error:
            raise CannotRun(str(error)) from error
    first = options.row or 0
    print(as_json(result, first) if options.json else as_text(result, first, asked_entropy=options.entropy))
    if figure is not None:
        draw(figure, result, first, options.plot)
    return int(any(error is not None for error in result.errors))


def _temperatures(text: str) -> Temperatures:
    """Read FROM:TO:STEP, or numbers with commas between; the service judges them."""
    ends = text.split(":")
    try:
        if len(ends) == 1:
            return [float(item) for item in text.split(",")]
        return dict(zip(("from", "to", "step"), map(float, ends), strict=True))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected FROM:TO:STEP or T,T,…, got {text[:40]!r}") from None
