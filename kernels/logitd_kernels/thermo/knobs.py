"""Which sampling parameters have no effect on a row, because another one decides."""

import torch

from logitd_kernels.backends import Backend
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.result import RowFault
from logitd_kernels.sampling.sample import sample
from logitd_kernels.sampling.transform import Values
from logitd_kernels.thermo.row_warnings import RowWarning

_MASKED = "had no effect"  # as notes of a trace say it


def knob_warnings(row: torch.Tensor, values: Values, backend: Backend) -> list[RowWarning]:
    """Return a warning for each parameter that changes nothing of what would be drawn from a row.

    Args:
        row: [V] as it was sent.
        values: checked parameters.
        backend: where to sample.
    Raises:
        ParameterError: a token id outside the vocabulary.
    """
    asked = {**values, "n": 1, "seed": 0}
    [answer] = sample(DenseRows(row[None]), [asked], backend=backend, trace=True)
    if isinstance(answer, RowFault):
        return [RowWarning("nothing_left", answer.detail)]
    return [RowWarning("knob_masked", note) for note in answer.notes or () if _MASKED in note]
