"""`logitd serve`: the service itself, when its extra is installed."""

import argparse
from typing import TYPE_CHECKING

from logitd.cli.failure import CannotRun

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: "Commands", *, chosen: bool) -> None:
    """Add the command, and its flags if it was chosen: they come from the server, which only the extra can import.

    Raises:
        CannotRun: chosen, and a package of the extra is missing.
    """
    parser = commands.add_parser("serve", help="run the service", allow_abbrev=False)
    if not chosen:
        return
    try:
        from logitd.server import add_arguments, run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "logitd":
            raise
        raise CannotRun(f"serve needs the server extra ({error}): pip install 'logitd[server]'") from error
    add_arguments(parser)
    parser.set_defaults(run=run)
