"""The Boltzmann view of rows of logits: a logit is a negative energy, E = −z, and softmax(z/T) its equilibrium at T."""

from logitd_kernels.thermo.analyze import RowAnalysis, analyze
from logitd_kernels.thermo.row_warnings import CODES, RowWarning
from logitd_kernels.thermo.sweep import Sweep

__all__ = ["CODES", "RowAnalysis", "RowWarning", "Sweep", "analyze"]
