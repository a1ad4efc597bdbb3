"""The state functions of one row over temperatures."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd_kernels.head import Floats, Ids


@dataclass(frozen=True, eq=False)
class Sweep:
    """One row, z with E = −z, at K temperatures; averages ⟨·⟩ are under p = softmax(z/T). Boltzmann's constant is 1.

        log Z = log Σ e^(z/T)    F = −T log Z    U = −⟨z⟩    S = −Σ p ln p    C = dU/dT = (⟨z²⟩ − ⟨z⟩²)/T²

    F = U − T·S within 1e-9 · max(|F|, |U|, T·S): S is a sum of its own, not made of F and U. What passes float64 is
    infinite: log Z at M/T, F at T·log Σ.

    Attributes:
        temperature: T > 0, [K] like all that follow.
        log_z: the log-partition function.
        free_energy: F, in units of a logit.
        internal_energy: U, in units of a logit.
        entropy: S in nats, rising with T from ln(logits equal to the maximum) to ln(finite logits).
        heat_capacity: C ≥ 0, in nats: the slope of S over ln T.
        effective_states: e^S, as many equally likely tokens have this entropy.
        max_probability: of the likeliest token.
        nucleus: how many of the largest logits reach a wanted mass, int64; None where none was asked for.
    """

    temperature: Floats
    log_z: Floats
    free_energy: Floats
    internal_energy: Floats
    entropy: Floats
    heat_capacity: Floats
    effective_states: Floats
    max_probability: Floats
    nucleus: Ids | None

    @classmethod
    def of(cls, temperatures: Floats, largest: float, sums: NDArray[Any], nucleus: Ids | None) -> "Sweep":
        """Derive the state functions from `THERMO` sums [K] of a row whose largest logit is `largest`."""
        log_sum = np.log(sums["mass"])
        with np.errstate(over="ignore"):
            log_z = largest / temperatures + log_sum
            free_energy = -largest - temperatures * log_sum  # not through log Z, which may be infinite
        return cls(
            temperature=temperatures,
            log_z=log_z,
            free_energy=free_energy,
            internal_energy=sums["gap"] - largest,
            entropy=sums["entropy"],
            heat_capacity=sums["variance"],
            effective_states=np.exp(sums["entropy"]),
            max_probability=1 / sums["mass"],
            nucleus=nucleus,
        )
