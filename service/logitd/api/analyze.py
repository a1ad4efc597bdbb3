"""POST /v1/analyze: rows of logits as Boltzmann distributions over temperatures."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from logitd.analyze_work import AnalyzeWork
from logitd.api.analyze_answer import Answer, analyze_answer
from logitd.api.analyze_job import analyze_job
from logitd.api.analyze_schemas import ANSWERS, REQUEST_SCHEMA
from logitd.api.answers import wants_safetensors
from logitd.api.exchange import HEAVY_ROWS, Exchange
from logitd.api.headers import header
from logitd.api.problems import responses
from logitd.api.requests import rows_of
from logitd.api.rows import refuse_bad
from logitd.api.schemas import request_body
from logitd.errors import Invalid
from logitd.wire import safetensors
from logitd.wire.message import Message
from logitd_kernels import RowFault
from logitd_kernels.errors import ParameterError

_HEAVY_POINTS = 1 << 10  # writing so many takes longer than handing them to another thread
_JSON_BYTES = 320  # of one temperature of one row, about

router = APIRouter(prefix="/v1", tags=["distributions"])


@router.post("/analyze", responses=responses(), openapi_extra={**request_body(REQUEST_SCHEMA), **ANSWERS})
async def analyze(request: Request) -> Response:
    """See each row as a Boltzmann distribution: log Z, energies, entropy and heat capacity over temperatures."""
    binary = wants_safetensors(header(request, b"accept") or "")
    with Exchange(request) as exchange:
        message = await exchange.message()
        heavy = rows_of(message) > HEAVY_ROWS
        work = await exchange.off_loop("decode", lambda: analyze_job(message, exchange.settings), heavy=heavy)
        points = work.rows * len(work.temperatures)
        if not binary and points > exchange.settings.max_json_bytes // _JSON_BYTES:
            raise Invalid.at("accept", f"{points} temperatures are too many for JSON; ask for {safetensors.MEDIA_TYPE}")
        answers = await _analyzed(exchange, message, work)
        refuse_bad(message, [one for one in answers if isinstance(one, RowFault)], len(answers), strict=False)
        return await exchange.response(
            lambda: analyze_answer(work, answers, binary), binary, heavy=heavy or points > _HEAVY_POINTS
        )


async def _analyzed(exchange: Exchange, message: Message, work: AnalyzeWork) -> Sequence[Answer]:
    """Analyse the rows.

    Raises:
        Invalid: naming a parameter that does not fit the vocabulary.
    """
    if not work.rows:
        return []
    try:
        return await exchange.computed(work)
    except ParameterError as error:
        raise Invalid.at(message.path(f"params.{error.field}"), error.message) from None
