"""The fields of an attention request that are flags."""

import argparse
from typing import Any

_FIELDS = ("tolerance", "causal", "layout", "window", "scale", "rank", "audit_rows", "seed", "methods")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags; what is not given is left to the service, which also checks what is."""
    parser.add_argument("--tolerance", type=float, metavar="E", help="relative error that a head may have (0.1)")
    parser.add_argument(
        "--method", action="append", dest="methods", metavar="NAME", help="a method to try; may be given again"
    )
    parser.add_argument("--causal", action="store_true", default=None, help="a query sees no later key")
    parser.add_argument("--layout", metavar="ORDER", help="of the tensors' dimensions: BHLD (default) or BLHD")
    parser.add_argument("--window", type=int, metavar="W", help="keys that a query sees, its own included")
    parser.add_argument("--scale", type=float, metavar="S", help="of q·k (1/√d)")
    parser.add_argument("--rank", type=int, metavar="R", help="of the quadratic part of moment and hybrid")
    parser.add_argument("--audit-rows", type=int, metavar="N", help="queries that are computed exactly")
    parser.add_argument("--seed", type=int, metavar="N", help="of random features")


def given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that were given."""
    values = {name: getattr(options, name) for name in _FIELDS}
    return {name: value for name, value in values.items() if value is not None}
