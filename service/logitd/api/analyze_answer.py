"""The Boltzmann view as JSON or safetensors."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from logitd.analyze_work import AnalyzeWork
from logitd.api.answers import encode_json, encode_safetensors, error_of
from logitd.wire.tensor import Tensor
from logitd_kernels import RowFault
from logitd_kernels.thermo import RowAnalysis, Sweep

Json = dict[str, Any]
Answer = RowAnalysis | RowFault

_FUNCTIONS = tuple(field.name for field in fields(Sweep))


def analyze_answer(work: AnalyzeWork, answers: Sequence[Answer], binary: bool) -> Callable[[Json], bytes]:
    """Encode an answer; call the result with the stage seconds, which are known last."""
    if not binary:
        return encode_json({"rows": [_row(answer) for answer in answers]})
    tensors = {name: Tensor.of(array) for name, array in _columns(work, answers).items()}
    return encode_safetensors(tensors, {"rows": [_rest(answer) for answer in answers]})


def _row(answer: Answer) -> Json:
    if isinstance(answer, RowFault):
        return {"sweep": None, "temperature_for_entropy": None, **_rest(answer)}
    columns = [getattr(answer.sweep, name) for name in _FUNCTIONS]
    each = zip(*([None] * len(columns[0]) if column is None else column.tolist() for column in columns), strict=True)
    points = [dict(zip(_FUNCTIONS, point, strict=True)) for point in each]
    return {"sweep": points, "temperature_for_entropy": answer.temperature_for_entropy, **_rest(answer)}


def _rest(answer: Answer) -> Json:
    if isinstance(answer, RowFault):
        return {"warnings": [], "error": error_of(answer)}
    return {"warnings": [asdict(warning) for warning in answer.warnings], "error": None}


def _columns(work: AnalyzeWork, answers: Sequence[Answer]) -> dict[str, np.ndarray]:
    shape = (len(answers), len(work.temperatures))
    columns = {name: np.full(shape, np.nan) for name in _FUNCTIONS if name not in ("temperature", "nucleus")}
    if work.mass is not None:
        columns["nucleus"] = np.full(shape, -1, np.int64)
    wanted, status = np.full(len(answers), np.nan), np.ones(len(answers), np.int32)
    for row, answer in enumerate(answers):
        if isinstance(answer, RowFault):
            continue
        status[row] = 0
        for name, column in columns.items():
            column[row] = getattr(answer.sweep, name)
        if answer.temperature_for_entropy is not None:
            wanted[row] = answer.temperature_for_entropy
    more = {"temperature_for_entropy": wanted} if work.entropy is not None else {}
    return {"temperatures": np.array(work.temperatures), **columns, **more, "status": status}
