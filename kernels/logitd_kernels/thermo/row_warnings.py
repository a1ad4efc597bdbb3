"""What deserves a second look in a row: a closed set of codes, each with plain words."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from logitd_kernels.thermo.survey import Survey
from logitd_kernels.thermo.sweep import Sweep

CODES = MappingProxyType(
    {
        "single": "one logit is finite: whatever the temperature, that token has all the mass",
        "degenerate": "all finite logits are equal: no temperature changes anything",
        "masked": "more than half of the logits are -inf",
        "large_offset": "the logits lie so far from 0 that their dtype cannot hold differences of 0.001",
        "saturated": "the likeliest token has more than 1 - 1e-9 of the mass at some of the temperatures",
        "flat": "at some of the temperatures e^S is above 0.99 of the number of finite logits",
        "entropy_out_of_reach": "no temperature gives the wanted entropy",
        "nothing_left": "the parameters leave no token to draw",
        "knob_masked": "a parameter has no effect because another one decides",
    }
)

_CERTAIN = 1e-9
_FLAT = 0.99
_FAR = 256.0
_FINE = 2.0**-10


@dataclass(frozen=True, slots=True)
class RowWarning:
    """One of `CODES`, and what it means for this row."""

    code: str
    detail: str


def row_warnings(row: Survey, sweep: Sweep) -> list[RowWarning]:
    """Return what the logits and the sweep alone say, in the order of `CODES`."""
    return [RowWarning(code, detail) for code, told in _TOLD.items() for detail in told(row, sweep)]


def _single(row: Survey, sweep: Sweep) -> Iterator[str]:
    if row.finite == 1:
        yield CODES["single"]


def _degenerate(row: Survey, sweep: Sweep) -> Iterator[str]:
    if row.is_level and row.finite > 1:
        yield f"all {row.finite} finite logits are {row.largest:.6g}: no temperature changes anything"


def _masked(row: Survey, sweep: Sweep) -> Iterator[str]:
    hidden = row.vocab_size - row.finite
    if hidden > row.vocab_size / 2:
        yield f"{hidden} of {row.vocab_size} logits are -inf"


def _large_offset(row: Survey, sweep: Sweep) -> Iterator[str]:
    if abs(row.largest) >= _FAR and row.spacing >= _FINE:
        yield (
            f"near {row.largest:.6g} the numbers of this dtype are {row.spacing:.2g} apart; smaller differences are "
            "lost: subtract the maximum before the logits are rounded"
        )


def _saturated(row: Survey, sweep: Sweep) -> Iterator[str]:
    if row.finite > 1:
        certain = 1 - sweep.max_probability < _CERTAIN
        yield from _where(certain, sweep, "the likeliest token has more than 1 - 1e-9 of the mass")


def _flat(row: Survey, sweep: Sweep) -> Iterator[str]:
    if not row.is_level:
        level = sweep.effective_states > _FLAT * row.finite
        yield from _where(level, sweep, f"almost uniform over {row.finite} tokens")


def _where(found: NDArray[np.bool_], sweep: Sweep, what: str) -> Iterator[str]:
    if found.any():
        hot = sweep.temperature[found]
        span = f"temperature {hot[0]:.6g}" if len(hot) == 1 else f"temperatures {hot.min():.6g} to {hot.max():.6g}"
        yield f"{what} at {span} ({len(hot)} of {len(found)})"


_TOLD: dict[str, Callable[[Survey, Sweep], Iterator[str]]] = {
    "single": _single,
    "degenerate": _degenerate,
    "masked": _masked,
    "large_offset": _large_offset,
    "saturated": _saturated,
    "flat": _flat,
}
