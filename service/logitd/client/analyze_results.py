"""What the client returns of rows as Boltzmann distributions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logitd.client.results import RowError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowWarning:
    """What deserves a second look in a row: a code for programs, words for people."""

    code: str
    detail: str


@dataclass(frozen=True, eq=False)
class AnalyzeResult:
    """The answer to one analysis: logits z as energies E = −z, averages ⟨·⟩ under softmax(z/T); NaN in failed rows.

    Attributes:
        temperatures: [K] T, as they were asked for, or those of the range.
        log_z: [B, K] log Σ e^(z/T).
        free_energy: [B, K] F = −T log Z = U − T·S.
        internal_energy: [B, K] U = −⟨z⟩.
        entropy: [B, K] S = −Σ p ln p, nats.
        heat_capacity: [B, K] C = dU/dT = (⟨z²⟩ − ⟨z⟩²)/T².
        effective_states: [B, K] e^S.
        max_probability: [B, K] of the likeliest token.
        nucleus: [B, K] int64, how many of the likeliest tokens hold the mass, −1 in failed rows; None without a mass.
        temperature_for_entropy: [B] T of the wanted entropy, NaN where none has it; None where none was asked for.
        warnings: of each row.
        errors: why each row failed, None for one that did not.
        seconds: where the service spent its time, by stage.
    """

    temperatures: Floats
    log_z: Floats
    free_energy: Floats
    internal_energy: Floats
    entropy: Floats
    heat_capacity: Floats
    effective_states: Floats
    max_probability: Floats
    nucleus: NDArray[np.int64] | None
    temperature_for_entropy: Floats | None
    warnings: list[tuple[RowWarning, ...]]
    errors: list[RowError | None]
    seconds: dict[str, float]
