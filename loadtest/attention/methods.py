"""Who attends: exact attention, torch's as its peer, and the linear methods."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from loadtest.attention.work import Work
from torch.nn import functional

from logitd_kernels.attention import APPROXIMATE, Call, Options, exact
from logitd_kernels.attention.bf16 import bf16_why_not, exact_bf16

PEER = "sdpa"
_QUADRATIC_TO = 8192  # keys; beyond it, exact attention takes longer than everything else together


@dataclass(frozen=True)
class Method:
    """A way to attend.

    Attributes:
        name: as in the table.
        attend: from a call to its output.
        linear: whether its time is meant to be linear in the length.
        bound: the largest relative error of a right answer on calls of `work`: about thrice what is found. Maps that
            are no better than the mean of V have its bound.
    """

    name: str
    attend: Callable[[Call], torch.Tensor]
    linear: bool
    bound: float


def _exact(call: Call) -> torch.Tensor:
    return exact(call, statistics=False).output


def _bf16(call: Call) -> torch.Tensor:
    return exact_bf16(call).output


def _sdpa(call: Call) -> torch.Tensor:
    return functional.scaled_dot_product_attention(call.q, call.k, call.v, is_causal=call.visible.causal)


def _approximate(call: Call, name: str, options: Options) -> torch.Tensor:
    return APPROXIMATE[name](call, options).output


def _linear(name: str, bound: float, options: Options | None = None) -> Method:
    return Method(name, partial(_approximate, name=name, options=options or Options()), True, bound)


METHODS = (
    Method("exact", _exact, False, 1e-5),
    Method("exact_bf16", _bf16, False, 0.01),
    Method(PEER, _sdpa, False, 1e-5),
    _linear("moment", 0.01),
    _linear("hybrid", 0.01),
    _linear("favor_plus", 0.25, Options(feature_dim=128)),
    _linear("elu", 0.2),
    _linear("mean_v", 0.2),
)
NAMED = {method.name: method for method in METHODS}


def able(work: Work, full: bool = False) -> list[Method]:
    """Return who is measured on some work: up to 8192 keys everyone who runs here, beyond that the linear methods.

    Args:
        full: the others beyond that too.
    """
    everyone = full or work.length <= _QUADRATIC_TO
    return [one for one in METHODS if one.name not in absent() and (everyone or one.linear)]


def absent() -> dict[str, str]:
    """Return who cannot run here and why."""
    reason = bf16_why_not()
    return {} if reason is None else {"exact_bf16": reason}
