"""`analyze`: the Boltzmann view of every row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, ParameterError
from logitd_kernels.head import Floats, Ids
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.result import RowFault
from logitd_kernels.sampling.transform import Values
from logitd_kernels.thermo.inverse import Wanted, temperature_for_entropy
from logitd_kernels.thermo.knobs import knob_warnings
from logitd_kernels.thermo.nucleus import nucleus_sizes
from logitd_kernels.thermo.row_warnings import RowWarning, row_warnings
from logitd_kernels.thermo.survey import Survey
from logitd_kernels.thermo.sweep import Sweep

TEMPERATURE = Number("temperatures", 1.0, "T of softmax(z/T).", gt=0)
ENTROPY = Number("entropy", 0.0, "Entropy in nats to find the temperature of.", ge=0)
MASS = Number("mass", 1.0, "Probability that the nucleus is to hold.", gt=0, le=1)


@dataclass(frozen=True, slots=True)
class RowAnalysis:
    """What a row is at each temperature.

    Attributes:
        sweep: its state functions.
        temperature_for_entropy: T of the wanted entropy; None where none was asked for, or none gives it.
        warnings: what deserves a second look.
    """

    sweep: Sweep
    temperature_for_entropy: float | None
    warnings: tuple[RowWarning, ...]


def analyze(
    rows: DenseRows,
    temperatures: Sequence[float] = (1.0,),
    *,
    entropy: float | None = None,
    mass: float | None = None,
    params: Values | None = None,
    backend: Backend | None = None,
) -> list[RowAnalysis | RowFault]:
    """See every row as a Boltzmann distribution, E = −z, over temperatures; the formulas are those of `Sweep`.

    Computed in float64 whatever the input; −inf has probability 0. Each temperature costs one pass over the row.

    Args:
        rows: the logits; a mask beside them is not applied.
        temperatures: K of them, each finite and > 0.
        entropy: nats; find the temperature that gives it.
        mass: in (0, 1]; find how many of the largest logits hold it at each temperature.
        params: checked sampling parameters (`registry.check`), to be warned where one masks another; they change no
            number here.
        backend: where to compute; None picks one.
    Returns:
        One `RowAnalysis` or `RowFault` a row, in order: NaN, +inf or nothing finite fails its row alone.
    Raises:
        ParameterError: a temperature, entropy, mass or parameter that is out of bounds.
    """
    if not temperatures:
        raise ParameterError("temperatures", "must hold at least one")
    asked = _Asked(
        np.array([_checked(place, temperature) for place, temperature in enumerate(temperatures)]),
        None if entropy is None else ENTROPY.check(entropy),
        None if mass is None else MASS.check(mass),
        params,
    )
    return [_answer(rows, index, asked, backend or pick("auto")) for index in range(len(rows))]


@dataclass(frozen=True, slots=True)
class _Asked:
    temperatures: Floats
    entropy: float | None
    mass: float | None
    params: Values | None


def _checked(place: int, temperature: object) -> float:
    try:
        return TEMPERATURE.check(temperature)
    except ParameterError as error:
        raise ParameterError(f"temperatures[{place}]", error.message) from None


def _answer(rows: DenseRows, index: int, asked: _Asked, backend: Backend) -> RowAnalysis | RowFault:
    try:
        row = rows.row(index)
    except BadRow as bad:
        return RowFault(index, bad.code, bad.kind, bad.detail)
    survey = Survey.of(row, rows.logits.dtype)
    place, largest = np.array([index]), np.array([survey.largest])

    def evaluate(temperature: float) -> tuple[float, float]:
        [[sums]] = backend.thermo(rows.logits, place, largest, np.array([[temperature]]))
        return float(sums["entropy"]), float(sums["variance"])

    [sums] = backend.thermo(rows.logits, place, largest, asked.temperatures[None])
    nucleus = _nucleus(row, asked, sums["mass"])
    sweep = Sweep.of(asked.temperatures, survey.largest, sums, nucleus)
    warnings = row_warnings(survey, sweep)
    wanted = Wanted(None) if asked.entropy is None else temperature_for_entropy(evaluate, survey, asked.entropy)
    if wanted.reason is not None:
        warnings.append(RowWarning("entropy_out_of_reach", wanted.reason))
    if asked.params is not None:
        warnings += knob_warnings(rows.logits[index], asked.params, backend)
    return RowAnalysis(sweep, wanted.temperature, tuple(warnings))


def _nucleus(row: torch.Tensor, asked: _Asked, total: Floats) -> Ids | None:
    return None if asked.mass is None else nucleus_sizes(row, asked.mass, asked.temperatures, total)
