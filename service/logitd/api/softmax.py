"""POST /v1/softmax: rows of logits to distributions."""

from fastapi import APIRouter, Request, Response

from logitd.api.answers import wants_safetensors
from logitd.api.exchange import HEAVY_ROWS, Exchange
from logitd.api.problems import responses
from logitd.api.requests import Naming, rows_of
from logitd.api.rows import refuse_bad
from logitd.api.schemas import LOGITS_SCHEMA, SoftmaxFields, json_body, request_body
from logitd.api.softmax_answer import softmax_answer
from logitd.api.softmax_job import SoftmaxJob, softmax_job
from logitd.errors import Invalid
from logitd.softmax_work import together
from logitd.wire import safetensors
from logitd.wire.message import Message
from logitd_kernels.softmax import SoftmaxRows

HEAVY_VALUES = 1 << 14  # writing so many takes longer than handing them to another thread
_JSON_BYTES = 16  # of one number, about

router = APIRouter(prefix="/v1", tags=["distributions"])

_BODY = json_body(SoftmaxFields, {"logits": LOGITS_SCHEMA}, ["logits"])


@router.post("/softmax", responses=responses(), openapi_extra=request_body(_BODY))
async def softmax(request: Request) -> Response:
    """Compute the softmax, log-softmax, log-sum-exp, sparsemax, 1.5-entmax or Gumbel-softmax of each row."""
    binary = wants_safetensors(request.headers.get("accept", ""))
    with Exchange(request) as exchange:
        message = await exchange.message()
        heavy = rows_of(message) > HEAVY_ROWS
        job = await exchange.off_loop("decode", lambda: softmax_job(message, exchange.settings), heavy=heavy)
        check_numbers(job.values, binary, exchange.settings.max_json_bytes)
        rows = await softmaxed(exchange, message, job)
        refuse_bad(message, rows.faults, len(job.rows), strict=False)
        return await exchange.response(
            lambda: softmax_answer(job, rows, binary), binary, heavy=heavy or job.values > HEAVY_VALUES
        )


async def softmaxed(exchange: Exchange, message: Message, job: SoftmaxJob) -> SoftmaxRows:
    """Compute the distributions of a job."""
    work = job.work
    with Naming(message):
        return together(await exchange.computed(work) if work.rows else work.compute(exchange.backend))


def check_numbers(count: int, binary: bool, max_json_bytes: int) -> None:
    """Refuse an answer of more numbers than JSON may have.

    Raises:
        Invalid.
    """
    if not binary and count > max_json_bytes // _JSON_BYTES:
        raise Invalid.at("accept", f"{count} values are too many for JSON; ask for {safetensors.MEDIA_TYPE}")
