"""Distributions of rows as JSON or safetensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from logitd.api.answers import encode_json, encode_safetensors, error_of
from logitd.api.softmax_job import SoftmaxJob
from logitd.wire.tensor import Tensor
from logitd_kernels.softmax import SoftmaxRows

Json = dict[str, Any]


def softmax_answer(job: SoftmaxJob, rows: SoftmaxRows, binary: bool) -> Callable[[Json], bytes]:
    """Encode an answer; call the result with the stage seconds, which are known last."""
    faults = {fault.row: error_of(fault) for fault in rows.faults}
    rest = [{"error": faults.get(row), **_key(job, row)} for row in range(len(job.rows))]
    if binary:
        tensors = {"log_z": rows.log_z.numpy(), "entropy": rows.entropy.numpy(), "status": _status(job, faults)}
        if job.noise:
            tensors["seed"] = np.array([noise.seed for noise in job.noise], np.uint64)
        if rows.values is not None:
            tensors["values"] = rows.values.numpy()
        return encode_safetensors({name: Tensor.of(array) for name, array in tensors.items()}, {"rows": rest})
    log_z, entropy = rows.log_z.tolist(), rows.entropy.tolist()
    told = [
        {
            "values": None if rows.values is None or row in faults else rows.values[row].numpy(),
            "log_z": log_z[row],
            "entropy": entropy[row],
            **own,
        }
        for row, own in enumerate(rest)
    ]
    # NaN and infinities become null.
    return encode_json({"rows": orjson.Fragment(orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY))})


def _key(job: SoftmaxJob, row: int) -> Json:
    """Return what replays a row's noise."""
    if not job.noise:
        return {}
    noise = job.noise[row]
    return {"seed": noise.seed, "stream": noise.stream, "step": noise.step}


def _status(job: SoftmaxJob, faults: dict[int, Json]) -> np.ndarray:
    return np.array([1 if row in faults else 0 for row in range(len(job.rows))], np.int32)
