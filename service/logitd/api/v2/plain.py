"""The shortest way to the job that is asked for most: see `api.quick`, of which this is the counterpart here."""

from collections.abc import Callable

import numpy as np
import torch

from logitd.api.quick import fits, plain_job, plain_values
from logitd.api.requests import SampleJob
from logitd.api.v2.models import Model
from logitd.settings import Settings
from logitd.wire.oip.entries import SharedPlace
from logitd.wire.oip.request import InferRequest
from logitd_kernels.hot import PlainRows

_ONLY = {"LOGITS"}
# Each with a dtype of numpy that is aligned where it is.
_DTYPES: dict[str, tuple[torch.dtype, type[np.generic]]] = {
    "FP32": (torch.float32, np.float32),
    "FP16": (torch.float16, np.float16),
    "BF16": (torch.bfloat16, np.uint16),
    "FP64": (torch.float64, np.float64),
}


def quick_job(
    request: InferRequest, model: Model, read: Callable[[SharedPlace], memoryview], settings: Settings
) -> SampleJob | None:
    """Return the job of an infer request whose names are known to be right; None where it takes the general way.

    Args:
        request: the request.
        model: whom it asks.
        read: returns what is at a place in shared memory.
        settings: for the limits.
    """
    if request.inputs.keys() != _ONLY or model.preset:
        return None
    one = request.inputs["LOGITS"]
    if one.datatype not in _DTYPES or len(one.shape) != 2:
        return None
    values = plain_values(request.parameters) if fits(*one.shape, settings) else None
    if values is None:
        return None
    dtype, aligned = _DTYPES[one.datatype]
    data = one.tensor(read).data
    if data.readonly or not np.frombuffer(data, aligned).flags.aligned:
        return None
    return plain_job(PlainRows(data, 0, dtype, *one.shape), values)
