"""`logitd verify-theory`: that softmax is Boltzmann's distribution, on a row of logits, here and now."""

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from logitd.cli.failure import CannotRun
from logitd.cli.real_row import real_row
from logitd.cli.source import one_row, read
from logitd.client import Head
from logitd.client.arrays import own_array

if TYPE_CHECKING:
    from logitd_kernels.thermo.theory import Check

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: "Commands") -> None:
    """Add the command."""
    parser = commands.add_parser(
        "verify-theory", help="check the laws of the Boltzmann distribution on a row of logits", allow_abbrev=False
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help=".npy, .safetensors or JSON; - for standard input (default: a real row with the extra demo, else Zipf's)",
    )
    parser.add_argument("--row", type=int, default=0, metavar="N", help="which row of the file (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print each law with the number that was found; 1 if any does not hold.

    Raises:
        CannotRun: the file or its row cannot be read, the row is bad, or a package of the extra is missing.
    """
    try:
        import torch

        from logitd_kernels.errors import BadRow
        from logitd_kernels.thermo.theory import verify
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "logitd":
            raise
        raise CannotRun(f"verify-theory needs the server extra ({error}): pip install 'logitd[server]'") from error
    row, what = _row(options)
    try:
        checks = verify(torch.from_numpy(row))
    except BadRow as bad:
        raise CannotRun(f"{what}: {bad}") from bad
    print(f"{what}; V = {len(row):,}")
    for check in checks:
        print(_line(check))
    failed = sum(not check.passed for check in checks)
    print(f"{len(checks)} laws hold" if not failed else f"{failed} of {len(checks)} laws do not hold")
    return int(failed > 0)


def _row(options: argparse.Namespace) -> tuple[np.ndarray[Any, Any], str]:
    if options.file is None:
        if options.row:
            raise CannotRun("--row goes with a file")
        return real_row()
    logits = read(options.file, None).logits
    if isinstance(logits, Head):
        raise CannotRun(f"{options.file}: verify-theory needs whole rows, not a head form")
    return own_array(one_row(logits, options.row, options.file))[0], f"{options.file}, row {options.row}"


def _line(check: "Check") -> str:
    verdict = "pass" if check.passed else "FAIL"
    return f"{verdict}  {check.name:17}  {check.found:8.2g} of at most {check.bound:g}  {check.says}"
