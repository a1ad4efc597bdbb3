"""logitd_kernels: tensors in, tensors out. Sampling from rows of logits, exactly and replayably.

Knows nothing of HTTP, settings or metrics.
"""

from logitd_kernels.backends import Backend, available, pick, set_threads
from logitd_kernels.philox import philox4x32, uniform
from logitd_kernels.rows import DenseRows, HeadRows
from logitd_kernels.sampling.registry import PARAMETERS, TRANSFORMS, check
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.sampling.sample import sample
from logitd_kernels.softmax import softmax

__all__ = [
    "PARAMETERS",
    "TRANSFORMS",
    "Backend",
    "DenseRows",
    "HeadRows",
    "RowFault",
    "RowResult",
    "available",
    "check",
    "philox4x32",
    "pick",
    "sample",
    "set_threads",
    "softmax",
    "uniform",
]
