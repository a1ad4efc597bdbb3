"""What rows say of their targets, as JSON or safetensors."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from logitd.api.answers import encode_json, encode_safetensors, error_of
from logitd.api.effective import effective
from logitd.api.score_job import ScoreJob
from logitd.wire.tensor import Tensor
from logitd_kernels import RowFault
from logitd_kernels.score import Answer, Score, loss_of

Json = dict[str, Any]

_NUMBERS = ("logprob_raw", "logprob", "rank", "entropy")


def score_answer(job: ScoreJob, answers: Sequence[Answer], backend: str, binary: bool) -> Callable[[Json], bytes]:
    """Encode an answer; call the result with the stage seconds, which are known last."""
    rest = {
        **_losses([answer for answer in answers if isinstance(answer, Score)]),
        "backend": backend,
        "effective": effective(job.sample.values, job.sample.shared),
    }
    errors = [error_of(answer) if isinstance(answer, RowFault) else None for answer in answers]
    if binary:
        tensors = {name: Tensor.of(array) for name, array in _columns(job, answers).items()}
        return encode_safetensors(tensors, {"rows": [{"error": error} for error in errors], **rest})
    targets = job.targets.tolist()
    rows = [
        {"target": target, **_numbers(job, answer), "error": error}
        for target, answer, error in zip(targets, answers, errors, strict=True)
    ]
    # NaN and infinities become null.
    return encode_json({"rows": orjson.Fragment(orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)), **rest})


def _losses(scores: Sequence[Score]) -> Json:
    loss, raw = loss_of([one.logprob for one in scores]), loss_of([one.logprob_raw for one in scores])
    return {**asdict(loss), **{f"{name}_raw": value for name, value in asdict(raw).items()}, "tokens": len(scores)}


def _numbers(job: ScoreJob, answer: Answer) -> Json:
    names = (*_NUMBERS, "gradient") if job.gradient else _NUMBERS
    if not isinstance(answer, Score):
        return dict.fromkeys(names)
    told = {name: getattr(answer, name) for name in names}
    return told if answer.gradient is None else {**told, "gradient": answer.gradient.numpy()}


def _columns(job: ScoreJob, answers: Sequence[Answer]) -> dict[str, NDArray[Any]]:
    rows = len(answers)
    status = np.array([isinstance(answer, RowFault) for answer in answers], np.int32)
    columns: dict[str, NDArray[Any]] = {"target": job.targets.numpy().astype(np.int64), "status": status}
    for name in _NUMBERS:
        columns[name] = np.full(rows, -1, np.int64) if name == "rank" else np.full(rows, np.nan)
    if job.gradient:
        columns["gradient"] = _gradients(job, answers)
    for row, answer in enumerate(answers):
        if isinstance(answer, Score):
            for name in _NUMBERS:
                columns[name][row] = getattr(answer, name)
    return columns


def _gradients(job: ScoreJob, answers: Sequence[Answer]) -> NDArray[Any]:
    """Return p − y of every row: 0 where the row was left out, NaN where it failed."""
    dtype = np.float64 if job.rows.logits.itemsize == np.float64().itemsize else np.float32
    gradients = np.zeros(job.rows.logits.shape, dtype)
    for row, answer in enumerate(answers):
        if answer is not None:
            gradients[row] = answer.gradient if isinstance(answer, Score) else np.nan
    return gradients
