"""POST /v1/softmax: rows of logits to distributions."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.answers import softmax_answer, wants_safetensors
from logitd.api.handler import answer
from logitd.api.problems import responses
from logitd.api.requests import named, softmax_job
from logitd.api.rows import refuse_bad
from logitd.api.schemas import LOGITS_SCHEMA, SoftmaxFields, json_body, request_body
from logitd.engine import Engine, Stages
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.wire import safetensors
from logitd.wire.message import Message

_JSON_BYTES = 16  # of one number, about

router = APIRouter(prefix="/v1", tags=["distributions"])

_BODY = json_body(SoftmaxFields, {"logits": LOGITS_SCHEMA}, ["logits"])


@router.post("/softmax", responses=responses(), openapi_extra=request_body(_BODY))
async def softmax(request: Request) -> Response:
    """Compute softmax, log-softmax or log-sum-exp of each row at a temperature, with its entropy."""
    settings: Settings = request.app.state.settings
    engine: Engine = request.app.state.engine
    binary = wants_safetensors(request.headers.get("accept", ""))

    def work(message: Message, stages: Stages) -> Callable[[dict[str, Any]], bytes]:
        with stages("decode"):
            job = softmax_job(message, settings)
        if not binary and job.values > settings.max_json_bytes // _JSON_BYTES:
            raise Invalid.at("accept", f"{job.values} values are too many for JSON; ask for {safetensors.MEDIA_TYPE}")
        with stages("compute"):
            rows = named(message, lambda: engine.softmax(job.rows, job.temperatures, job.kind))
        refuse_bad(message, rows.faults, len(job.rows), strict=False)
        with stages("encode"):
            return softmax_answer(job, rows, binary)

    return await answer(request, work, binary)
