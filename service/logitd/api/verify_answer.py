"""What became of draft tokens, as JSON or safetensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from logitd.api.answers import encode_json, encode_safetensors, error_of
from logitd.api.effective import effective
from logitd.api.verify_job import VerifyJob
from logitd.wire.tensor import Tensor
from logitd_kernels import RowFault
from logitd_kernels.sampling.verify import Verified

Json = dict[str, Any]
Answer = Verified | RowFault


def verify_answer(job: VerifyJob, answers: Sequence[Answer], backend: str, binary: bool) -> Callable[[Json], bytes]:
    """Encode an answer; call the result with the stage seconds, which are known last."""
    draft = job.params if job.draft_params is None else job.draft_params
    rest = {
        "backend": backend,
        "method": job.fields.method,
        "effective": effective(job.params.each, job.params.shared),
        "effective_draft": None if job.speculation.draft_logits is None else effective(draft.each, draft.shared),
    }
    if not binary:
        return encode_json({"rows": [_row(job, row, answer) for row, answer in enumerate(answers)], **rest})
    tensors = {name: Tensor.of(array) for name, array in _columns(job.speculation.drafts, answers).items()}
    return encode_safetensors(tensors, {"rows": [_drawn(job, row, a) for row, a in enumerate(answers)], **rest})


def _row(job: VerifyJob, row: int, answer: Answer) -> Json:
    if isinstance(answer, RowFault):
        return {**dict.fromkeys(("tokens", "accepted", "acceptance", "seed")), **_drawn(job, row, answer)}
    padding = [None] * (job.speculation.drafts - len(answer.acceptance))
    told = {"tokens": answer.tokens, "accepted": answer.accepted, "acceptance": [*answer.acceptance, *padding]}
    return {**told, "seed": answer.seed, **_drawn(job, row, answer)}


def _drawn(job: VerifyJob, row: int, answer: Answer) -> Json:
    values = job.params.each[row]
    error = error_of(answer) if isinstance(answer, RowFault) else None
    return {"stream": values["stream"], "step": values["step"], "error": error}


def _columns(drafts: int, answers: Sequence[Answer]) -> dict[str, np.ndarray]:
    rows = len(answers)
    tokens, accepted = np.full((rows, drafts + 1), -1, np.int64), np.full(rows, -1, np.int32)
    acceptance, seeds = np.full((rows, drafts), np.nan), np.zeros(rows, np.uint64)
    status = np.ones(rows, np.int32)
    for row, answer in enumerate(answers):
        if isinstance(answer, Verified):
            tokens[row], accepted[row], seeds[row], status[row] = answer.tokens, answer.accepted, answer.seed, 0
            acceptance[row, : len(answer.acceptance)] = answer.acceptance
    return {"tokens": tokens, "accepted": accepted, "acceptance": acceptance, "seed": seeds, "status": status}
