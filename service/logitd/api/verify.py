"""POST /v1/verify: draft tokens of speculative decoding to those that the target model accepts, and one more."""

from fastapi import APIRouter, Request, Response

from logitd.api.answers import wants_safetensors
from logitd.api.exchange import HEAVY_ROWS, Exchange
from logitd.api.headers import header
from logitd.api.problems import responses
from logitd.api.requests import Naming, rows_of
from logitd.api.rows import refuse_bad
from logitd.api.schemas import json_body, request_body
from logitd.api.verify_answer import Answer, verify_answer
from logitd.api.verify_job import VerifyJob, verify_job
from logitd.api.verify_schemas import VERIFY_SCHEMA, VerifyFields
from logitd.engine import Engine
from logitd.errors import Invalid
from logitd.wire.known import VERIFY
from logitd.wire.message import Message
from logitd_kernels import RowFault
from logitd_kernels.errors import ParameterError

router = APIRouter(prefix="/v1", tags=["sampling"])

_BODY = json_body(VerifyFields, VERIFY_SCHEMA, ["target_logits", "draft_ids"])


@router.post("/verify", responses=responses(), openapi_extra=request_body(_BODY, VERIFY))
async def verify(request: Request) -> Response:
    """Accept draft tokens so that the sequence is distributed as if the target model alone had sampled it."""
    engine: Engine = request.app.state.engine
    binary = wants_safetensors(header(request, b"accept") or "")
    with Exchange(request) as exchange:
        message = await exchange.message(VERIFY)
        heavy = rows_of(message) > HEAVY_ROWS
        job = await exchange.off_loop("decode", lambda: verify_job(message, exchange.settings), heavy=heavy)
        answers = await _verified(exchange, message, job)
        faults = [answer for answer in answers if isinstance(answer, RowFault)]
        refuse_bad(message, faults, len(answers), strict=job.fields.strict)
        return await exchange.response(
            lambda: verify_answer(job, answers, engine.backend.name, binary), binary, heavy=heavy
        )


async def _verified(exchange: Exchange, message: Message, job: VerifyJob) -> list[Answer]:
    """Verify the rows of a job.

    Raises:
        Invalid: naming a parameter that only its row showed to be impossible.
    """
    if not len(job.speculation):
        return []
    with Naming(message):
        try:
            return list(await exchange.computed(job.work))
        except ParameterError as error:
            raise Invalid.at(job.path_of(message, error), error.message) from None
