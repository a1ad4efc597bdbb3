"""From what the kernels return to the outputs of a model, and to where each of them is to go."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

from logitd.api.attention_answer import laid_out, report_of
from logitd.api.attention_job import AttentionJob
from logitd.api.columns import sample_tensors
from logitd.api.requests import SampleJob
from logitd.api.softmax_job import SoftmaxJob
from logitd.api.tensors import to_wire
from logitd.errors import Invalid, Malformed
from logitd.shared_region import Region
from logitd.wire.oip.answer import Output, Sent
from logitd.wire.oip.entries import WantedOutput
from logitd.wire.oip.request import InferRequest
from logitd.wire.tensor import Tensor
from logitd_kernels.attention import Answer
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.softmax import SoftmaxRows

_JSON_BYTES = 16  # of one number, about
_STATUS = {"non_finite": 1, "all_masked": 2, "head_too_short": 3}
_OTHER_FAULT = 4


def sample_outputs(
    job: SampleJob, answers: Sequence[RowResult | RowFault], wanted: Iterable[str] | None
) -> list[Output]:
    """Return those outputs of `sample` that are wanted, all for None; each has a row for each row of logits."""
    names = None if wanted is None else {name.lower() for name in wanted}
    faults = [answer for answer in answers if isinstance(answer, RowFault)]
    tensors = {**sample_tensors(job, answers, names), "status": _status(len(answers), faults)}
    return [_column(name.upper(), array) for name, array in tensors.items() if names is None or name in names]


def softmax_outputs(job: SoftmaxJob, rows: SoftmaxRows) -> list[Output]:
    """Return the outputs of `softmax`; no PROBABILITIES of kind `logsumexp`, and SEED only of `gumbel_softmax`."""
    seeds = [_column("SEED", np.array([noise.seed for noise in job.noise], np.uint64))] if job.noise else []
    values = [] if rows.values is None else [Output("PROBABILITIES", to_wire(rows.values))]
    return [
        *values,
        _column("LOG_Z", rows.log_z.numpy()),
        _column("ENTROPY", rows.entropy.numpy()),
        *seeds,
        _column("STATUS", _status(len(rows.log_z), rows.faults)),
    ]


def attention_outputs(job: AttentionJob, answer: Answer) -> list[Output]:
    """Return the outputs of `attention`: the tensor, and what `/v1/attention` tells beside it as JSON."""
    report = orjson.dumps(report_of(job, answer))
    return [Output("OUTPUT", to_wire(laid_out(job, answer))), Output("REPORT", report)]


def sent_outputs(
    request: InferRequest, produced: Sequence[Output], regions: Mapping[str, Region], max_json_bytes: int
) -> list[Sent]:
    """Choose the outputs that the caller wants, and put into shared memory what is to go there.

    Args:
        request: the request.
        produced: every output there is.
        regions: that the request names.
        max_json_bytes: the largest JSON answer.
    Raises:
        Malformed: an output that this request does not produce, or a place that is too small for it.
        Invalid: more numbers than JSON may have.
    """
    by_name = {output.name: output for output in produced}
    wanted = request.outputs or [WantedOutput(output.name, "outputs") for output in produced]
    for one in wanted:
        if one.name not in by_name:
            raise Malformed.at(one.path, f"output '{one.name}' is not produced with these parameters")
    chosen = [(one, by_name[one.name]) for one in wanted]
    sent = [Sent(output, _how(one, request.binary_outputs), one.path) for one, output in chosen]
    numbers = sum(math.prod(one.output.shape) for one in sent if one.how == "json")
    if numbers > max_json_bytes // _JSON_BYTES:
        raise Invalid.at("outputs", f"{numbers} numbers are too many for JSON; ask for binary_data")
    for one, output in chosen:
        if one.place is not None and one.place.byte_size < output.byte_size:
            raise Malformed.at(
                f"{one.path}.parameters.shared_memory_byte_size",
                f"output '{one.name}' takes {output.byte_size} bytes, got {one.place.byte_size}",
            )
    for one, output in chosen:
        if one.place is not None:
            regions[one.place.region].write(one.place.offset, output.chunks)
    return sent


def _how(one: WantedOutput, binary_by_default: bool) -> str:
    if one.place is not None:
        return "placed"
    return "binary" if (binary_by_default if one.binary is None else one.binary) else "json"


def _column(name: str, array: NDArray[np.generic]) -> Output:
    """Return one number a row as [B, 1]; what has several stays [B, n]."""
    return Output(name, Tensor.of(array[:, None] if array.ndim == 1 else array))


def _status(rows: int, faults: Sequence[RowFault]) -> NDArray[np.int32]:
    """Return 0 for each row that went well, and a number for why one did not."""
    status = np.zeros(rows, np.int32)
    for fault in faults:
        status[fault.row] = _STATUS.get(fault.code, _OTHER_FAULT)
    return status
