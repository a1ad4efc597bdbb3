"""POST /v1/sample: rows of logits, or their heads, to tokens."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.answers import sample_answer, wants_safetensors
from logitd.api.handler import answer
from logitd.api.problems import responses
from logitd.api.requests import SampleJob, named, sample_job
from logitd.api.rows import refuse_bad
from logitd.api.schemas import HEAD_SCHEMA, LOGITS_SCHEMA, MASK_SCHEMA, SampleFields, json_body, request_body
from logitd.engine import Engine, Stages
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.wire.message import Message
from logitd_kernels import RowFault, RowResult
from logitd_kernels.errors import ParameterError

router = APIRouter(prefix="/v1", tags=["sampling"])

_BODY = json_body(SampleFields, {"logits": LOGITS_SCHEMA, "head": HEAD_SCHEMA, "mask": MASK_SCHEMA}, [])


@router.post("/sample", responses=responses(), openapi_extra=request_body(_BODY))
async def sample(request: Request) -> Response:
    """Edit, scale and truncate each row of logits, then draw token ids from it. A bad row fails alone."""
    settings: Settings = request.app.state.settings
    engine: Engine = request.app.state.engine
    binary = wants_safetensors(request.headers.get("accept", ""))

    def work(message: Message, stages: Stages) -> Callable[[dict[str, Any]], bytes]:
        with stages("decode"):
            job = sample_job(message, settings)
        with stages("compute"):
            answers = named(message, lambda: _compute(engine, message, job))
        refuse_bad(message, [a for a in answers if isinstance(a, RowFault)], len(answers), strict=job.fields.strict)
        with stages("encode"):
            return sample_answer(job, answers, engine.backend.name, binary)

    return await answer(request, work, binary)


def _compute(engine: Engine, message: Message, job: SampleJob) -> list[RowResult | RowFault]:
    asked = job.fields
    try:
        return engine.sample(
            job.rows, job.values, logprobs=asked.logprobs, logprobs_mode=asked.logprobs_mode, trace=asked.trace
        )
    except ParameterError as error:
        raise Invalid.at(job.path_of(message, error), error.message) from None
