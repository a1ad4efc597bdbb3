"""`logitd sample`: tokens for the logits in a file. Any sampling parameter is a flag."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from logitd.cli import service
from logitd.cli.failure import CannotRun
from logitd.cli.source import read
from logitd.cli.table import as_json, as_tables

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_EPILOG = """\
Every other flag is a sampling parameter, checked by the service: --temperature 0.7 --top-p 0.9 --seed 1
--banned-ids '[1, 2]'. A value is read as JSON where it can be, else as text; a flag before another flag or at the end
is true (--allow-inexact); --name=value always works.
"""


def add_command(commands: "Commands") -> set[str]:
    """Add the command; returns its own flags, so that all others can be parameters."""
    parser = commands.add_parser(
        "sample", help="draw a token for every row of logits in a file", epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("file", metavar="FILE", help=".npy, .safetensors or JSON; - for standard input")
    flags = [
        *service.add_arguments(parser),
        parser.add_argument("--compact", type=int, metavar="N", help="send only the N largest logits of each row"),
        parser.add_argument("--logprobs", type=int, default=0, metavar="N", help="show the N likeliest tokens"),
        parser.add_argument("--logprobs-mode", default="raw", metavar="MODE", help="raw (default) or processed"),
        parser.add_argument("--trace", action="store_true", help="show the distribution after each transform"),
        parser.add_argument(
            "--dialect", default="vllm", metavar="NAME", help="order: vllm, hf, llama.cpp, sglang, exllama"
        ),
        parser.add_argument("--order", metavar="NAMES", help="transforms in your own order, with commas between"),
        parser.add_argument("--strict", action="store_true", help="refuse the request if any row is bad"),
        parser.add_argument("--json", action="store_true", help="print the rows as JSON"),
        parser.add_argument("--vocab-size", type=int, metavar="V", help="for a file in head form that lacks it"),
    ]
    parser.set_defaults(run=run)
    return {"--help", *(name for flag in flags for name in flag.option_strings)}


def split(arguments: Sequence[str], flags: set[str]) -> tuple[list[str], dict[str, Any]]:
    """Take the parameters out of the arguments: every long flag that is not one of `flags`, with its value.

    argparse cannot: it would take the value of a flag that it does not know for the file.
    """
    rest: list[str] = []
    params: dict[str, Any] = {}
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        flag, equals, text = argument.partition("=")
        if not flag.startswith("--") or flag == "--" or flag in flags:
            rest.append(argument)
            continue
        if not equals:
            has_value = bool(waiting) and waiting[-1] != "-" and not waiting[-1].startswith("--")
            text = waiting.pop() if has_value else "true"
        params[flag.removeprefix("--").replace("-", "_")] = _value(text)
    return rest, params


def run(options: argparse.Namespace) -> int:
    """Print the answer; 1 if any row failed.

    Raises:
        CannotRun: the file or the arguments cannot be sent.
        ClientError: the service cannot be reached, or refuses.
    """
    source = read(options.file, options.vocab_size)
    with service.connect(options) as client:
        try:
            result = client.sample(
                source.logits,
                params=options.params,
                mask=source.mask,
                logprobs=options.logprobs,
                logprobs_mode=options.logprobs_mode,
                trace=options.trace,
                strict=options.strict,
                dialect=options.dialect,
                order=options.order and options.order.split(","),
                compact=options.compact,
            )
        except (TypeError, ValueError) as error:
            raise CannotRun(str(error)) from error
    print(as_json(result) if options.json else as_tables(result))
    return int(result.failed.any())


def _value(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError:
        return text
