"""From what attention gives to bytes."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
import torch

from logitd.api.answers import encode_json, encode_safetensors
from logitd.api.attention_job import AttentionJob
from logitd.api.tensors import to_wire
from logitd_kernels.attention import Answer

Json = dict[str, Any]


def attention_answer(job: AttentionJob, answer: Answer, binary: bool) -> Callable[[Json], bytes]:
    """Encode an answer in the caller's layout and dtype; call the result with the stage seconds, known last."""
    output, report = laid_out(job, answer), report_of(job, answer)
    if binary:
        return encode_safetensors({"output": to_wire(output)}, report)
    numbers = output.to(torch.float64 if output.dtype == torch.float64 else torch.float32).contiguous().numpy()
    text = orjson.Fragment(orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY))
    return encode_json({"output": text, **report})


def laid_out(job: AttentionJob, answer: Answer) -> torch.Tensor:
    """Return the output in the caller's layout."""
    return answer.output.transpose(1, 2) if job.fields.layout == "BLHD" else answer.output


def report_of(job: AttentionJob, answer: Answer) -> Json:
    """Return what is told beside the output."""
    return {
        "heads": [[_finite(asdict(head)) for head in row] for row in answer.heads],
        "threshold": job.wish.threshold,
        "cost": answer.cost,
        "attention_seconds": answer.seconds,
        "effective": job.fields.model_dump(exclude_none=True),
    }


def _finite(report: Json) -> Json:
    """Return a report with null for an error without bound: JSON has no infinity."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in report.items()
    }
