"""POST /v1/sample: rows of logits, or their heads, to tokens."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from logitd.api.answers import sample_answer, wants_safetensors
from logitd.api.exchange import HEAVY_ROWS, Exchange
from logitd.api.headers import header
from logitd.api.problems import responses
from logitd.api.quick import MESSAGE, quick_job
from logitd.api.requests import Naming, SampleJob, rows_of, sample_job
from logitd.api.rows import refuse_bad
from logitd.api.schemas import (
    GUIDANCE_SCHEMA,
    HEAD_SCHEMA,
    IDS_SCHEMA,
    LOGITS_SCHEMA,
    MASK_SCHEMA,
    SampleFields,
    json_body,
    request_body,
)
from logitd.engine import Engine
from logitd.errors import Invalid
from logitd.wire.message import Message
from logitd_kernels import RowFault, RowResult
from logitd_kernels.errors import ParameterError

router = APIRouter(prefix="/v1", tags=["sampling"])

_TENSORS = {
    "logits": LOGITS_SCHEMA,
    "head": HEAD_SCHEMA,
    "mask": MASK_SCHEMA,
    "prompt_ids": IDS_SCHEMA,
    "output_ids": IDS_SCHEMA,
    "guidance_logits": GUIDANCE_SCHEMA,
}
_BODY = json_body(SampleFields, _TENSORS, [])


@router.post("/sample", responses=responses(), openapi_extra=request_body(_BODY))
async def sample(request: Request) -> Response:
    """Edit, scale and truncate each row of logits, then draw token ids from it. A bad row fails alone."""
    engine: Engine = request.app.state.engine
    binary = wants_safetensors(header(request, b"accept") or "")
    with Exchange(request) as exchange:
        message, job = await _received(exchange)
        answers = await sampled(exchange, message, job)
        faults = [answer for answer in answers if isinstance(answer, RowFault)]
        refuse_bad(message, faults, len(answers), strict=job.fields.strict)
        backend, heavy = engine.backend.name, len(answers) > HEAVY_ROWS
        return await exchange.response(lambda: sample_answer(job, answers, backend, binary), binary, heavy=heavy)


async def _received(exchange: Exchange) -> tuple[Message, SampleJob]:
    """Receive, decode and check a request."""
    undecoded = await exchange.undecoded()
    if undecoded.is_bare_safetensors and exchange.backend.plain is not None:
        with exchange.stages("decode"):
            job = quick_job(undecoded.body, exchange.settings)
        if job is not None:
            return MESSAGE, job
    message = await exchange.decoded(undecoded)
    heavy = rows_of(message) > HEAVY_ROWS
    return message, await exchange.off_loop("decode", lambda: sample_job(message, exchange.settings), heavy=heavy)


async def sampled(exchange: Exchange, message: Message, job: SampleJob) -> Sequence[RowResult | RowFault]:
    """Sample the rows of a job.

    Raises:
        Invalid: naming a parameter that only its row showed to be impossible.
    """
    if not len(job.rows):
        return []
    work = job.work
    with Naming(message):
        try:
            answers = await exchange.computed(work)
        except ParameterError as error:
            raise Invalid.at(job.path_of(message, error), error.message) from None
    return work.sampled(answers)
