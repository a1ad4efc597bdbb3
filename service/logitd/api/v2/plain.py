"""The shortest way to the job that is asked for most: see `api.quick`, of which this is the counterpart here."""

from collections.abc import Callable

import numpy as np

from logitd.api.quick import FLOATS, fits, plain_job, plain_values
from logitd.api.requests import SampleJob
from logitd.api.v2.models import Model
from logitd.settings import Settings
from logitd.wire.oip.datatypes import DTYPES
from logitd.wire.oip.entries import SharedPlace
from logitd.wire.oip.request import InferRequest
from logitd_kernels.hot import PlainRows

_ONLY = {"LOGITS"}


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
    dtype = FLOATS.get(DTYPES[one.datatype])
    if dtype is None or len(one.shape) != 2 or not fits(*one.shape, settings):
        return None
    values = plain_values(request.parameters)
    if values is None:
        return None
    data = one.tensor(read).data
    if not np.frombuffer(data, f"u{dtype.itemsize}").flags.aligned:
        return None
    return plain_job(PlainRows(data, 0, dtype, *one.shape), values)
