"""The choice of a method for a whole call, before anything is computed; heads are judged afterwards, by their audit."""

from dataclasses import dataclass

from logitd_kernels.attention.bf16 import bf16_why_not
from logitd_kernels.attention.call import Call
from logitd_kernels.attention.methods import APPROXIMATE, MODES
from logitd_kernels.attention.moment.feasibility import feasibility
from logitd_kernels.attention.sequences import check_structured
from logitd_kernels.errors import BackendUnavailable, ParameterError

WHYS = ("requested", "short", "long", "unrepresentable", "few_queries", "infeasible", "given_up")
_SECOND_ORDER = ("hybrid", "moment")
HOPELESS = 3.0  # times the tolerance: the probe may be 2.5 times too high


@dataclass(frozen=True)
class Choice:
    """How to attend, and why.

    Attributes:
        mode: of `methods.MODES`, neither `auto` nor `linear`.
        why: one of `WHYS`, for programs.
        reason: the same in words.
    """

    mode: str
    why: str
    reason: str


def choose(call: Call, mode: str, method: str, threshold: int, tolerance: float) -> Choice:
    """Choose how to attend.

    `linear` is `method`. `auto` is exact up to `threshold` keys, where a linear state cannot say what the call says or
    hold its magnitudes, where there are fewer queries than would pay for a state, and where every head is predicted to
    miss the tolerance by far; else `method`.

    Raises:
        ParameterError: an unknown mode or method.
        BackendUnavailable: `exact_bf16` where it cannot run.
    """
    if mode not in MODES:
        raise ParameterError("mode", f"must be one of {', '.join(MODES)}, got {mode[:40]!r}")
    if method not in APPROXIMATE:
        raise ParameterError("method", f"must be one of {', '.join(APPROXIMATE)}, got {method[:40]!r}")
    if mode == "exact_bf16" and (reason := bf16_why_not(call)):
        raise BackendUnavailable(mode, reason)
    if mode != "auto":
        return Choice(method if mode == "linear" else mode, "requested", "requested")
    why, reason = _why_exact(call, method, threshold, tolerance)
    return Choice("exact" if why else method, why or "long", reason)


def _why_exact(call: Call, method: str, threshold: int, tolerance: float) -> tuple[str | None, str]:
    if call.keys <= threshold:
        return "short", f"{call.keys} keys, no more than the threshold of {threshold}"
    try:
        check_structured(call, f"a state of {method}", causal=method != "nystrom")
    except ParameterError as error:
        return "unrepresentable", str(error)
    if call.queries <= threshold:
        return "few_queries", f"{call.queries} queries would not pay for a state"
    return _why_hopeless(call, method, tolerance) or (None, f"{call.keys} keys, more than the threshold of {threshold}")


def _why_hopeless(call: Call, method: str, tolerance: float) -> tuple[str, str] | None:
    if method not in _SECOND_ORDER:
        return None
    try:
        predicted = feasibility(call).error
    except ParameterError as error:
        return "unrepresentable", str(error)
    if not (predicted > HOPELESS * tolerance).all():
        return None
    return "infeasible", f"second order is predicted to err by {float(predicted.min()):.2g} at best"
