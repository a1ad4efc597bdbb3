"""POST /v1/softmax: rows of logits to distributions."""

from fastapi import APIRouter, Request, Response

from logitd.api.answers import softmax_answer, wants_safetensors
from logitd.api.exchange import HEAVY_ROWS, Exchange
from logitd.api.problems import responses
from logitd.api.requests import Naming, rows_of, softmax_job
from logitd.api.rows import refuse_bad
from logitd.api.schemas import LOGITS_SCHEMA, SoftmaxFields, json_body, request_body
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.wire import safetensors
from logitd.work import SoftmaxWork

_HEAVY_VALUES = 1 << 14  # writing so many takes longer than handing them to another thread
_JSON_BYTES = 16  # of one number, about

router = APIRouter(prefix="/v1", tags=["distributions"])

_BODY = json_body(SoftmaxFields, {"logits": LOGITS_SCHEMA}, ["logits"])


@router.post("/softmax", responses=responses(), openapi_extra=request_body(_BODY))
async def softmax(request: Request) -> Response:
    """Compute softmax, log-softmax or log-sum-exp of each row at a temperature, with its entropy."""
    settings: Settings = request.app.state.settings
    binary = wants_safetensors(request.headers.get("accept", ""))
    with Exchange(request) as exchange:
        message = await exchange.message()
        heavy = rows_of(message) > HEAVY_ROWS
        job = await exchange.off_loop("decode", lambda: softmax_job(message, settings), heavy=heavy)
        if not binary and job.values > settings.max_json_bytes // _JSON_BYTES:
            raise Invalid.at("accept", f"{job.values} values are too many for JSON; ask for {safetensors.MEDIA_TYPE}")
        with Naming(message):
            (rows,) = await exchange.computed(SoftmaxWork(job.rows, job.temperatures, job.kind))
        refuse_bad(message, rows.faults, len(job.rows), strict=False)
        return await exchange.response(
            lambda: softmax_answer(job, rows, binary), binary, heavy=heavy or job.values > _HEAVY_VALUES
        )
