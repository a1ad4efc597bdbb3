"""No figure for who answers wrongly: everyone is compared with exact attention in float64 before any clock starts."""

from collections.abc import Iterable

import torch
from loadtest.attention.methods import Method, able
from loadtest.attention.work import Work
from loadtest.kernels.answers import WrongAnswerError

from logitd_kernels.attention import exact

_ASKED = 1024  # the last queries of a call, the ones that see most

Errors = dict[tuple[str, Work], float]


def check(works: Iterable[Work], full: bool) -> Errors:
    """Return ‖answer − exact‖ / ‖exact‖ by method and work.

    Raises:
        WrongAnswerError: someone's is beyond his bound.
    """
    return {(name, work): error for work in works for name, error in errors(work, able(work, full)).items()}


def errors(work: Work, methods: Iterable[Method]) -> dict[str, float]:
    """Return the relative error of each method on the last queries of a call.

    Raises:
        WrongAnswerError: as `check`.
    """
    wanted = exact(work.ending(_ASKED)).output
    found = {}
    for method in methods:
        output = method.attend(work.call)[:, :, -_ASKED:]
        error = float(torch.linalg.norm(output - wanted) / torch.linalg.norm(wanted))
        if not error <= method.bound:
            mask = "causal" if work.causal else "not causal"
            raise WrongAnswerError(f"{method.name}: error {error:.3g} > {method.bound:g} at L = {work.length}, {mask}")
        found[method.name] = error
    return found
