"""POST /v1/score: what rows of logits say of tokens that are given."""

from fastapi import APIRouter, Request, Response

from logitd.api.answers import wants_safetensors
from logitd.api.exchange import HEAVY_ROWS, Exchange
from logitd.api.problems import responses
from logitd.api.requests import Naming, rows_of
from logitd.api.rows import refuse_bad
from logitd.api.schemas import json_body, request_body
from logitd.api.score_answer import score_answer
from logitd.api.score_job import ScoreJob, score_job
from logitd.api.score_schemas import SCORE_SCHEMA, ScoreFields
from logitd.api.softmax import HEAVY_VALUES, check_numbers
from logitd.errors import Invalid
from logitd.wire.known import SCORE
from logitd.wire.message import Message
from logitd_kernels import RowFault
from logitd_kernels.errors import ParameterError
from logitd_kernels.score import Answer

router = APIRouter(prefix="/v1", tags=["distributions"])

_BODY = json_body(ScoreFields, SCORE_SCHEMA, ["logits", "targets"])


@router.post("/score", responses=responses(), openapi_extra=request_body(_BODY, SCORE))
async def score(request: Request) -> Response:
    """Compute log-probability, rank, cross-entropy and perplexity of a given token for each row."""
    binary = wants_safetensors(request.headers.get("accept", ""))
    with Exchange(request) as exchange:
        message = await exchange.message(SCORE)
        heavy = rows_of(message) > HEAVY_ROWS
        job = await exchange.off_loop("decode", lambda: score_job(message, exchange.settings), heavy=heavy)
        check_numbers(job.numbers, binary, exchange.settings.max_json_bytes)
        answers = await _scored(exchange, message, job)
        faults = [answer for answer in answers if isinstance(answer, RowFault)]
        refuse_bad(message, faults, sum(answer is not None for answer in answers), strict=False)
        backend, heavy = exchange.backend.name, heavy or job.numbers > HEAVY_VALUES
        return await exchange.response(lambda: score_answer(job, answers, backend, binary), binary, heavy=heavy)


async def _scored(exchange: Exchange, message: Message, job: ScoreJob) -> list[Answer]:
    """Score the rows of a job.

    Raises:
        Invalid: naming a parameter that only its row showed to be impossible.
    """
    if not len(job.rows):
        return []
    with Naming(message):
        try:
            return list(await exchange.computed(job.work))
        except ParameterError as error:
            raise Invalid.at(job.sample.path_of(message, error), error.message) from None
