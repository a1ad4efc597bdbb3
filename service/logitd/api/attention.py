"""POST /v1/attention: queries, keys and values to attention, with the measured error of every head."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.answers import wants_safetensors
from logitd.api.attention_answer import attention_answer
from logitd.api.attention_job import AttentionJob, attention_job
from logitd.api.attention_schemas import ATTENTION_SCHEMA, AttentionFields
from logitd.api.exchange import Exchange
from logitd.api.problems import responses
from logitd.api.requests import named
from logitd.api.schemas import json_body, request_body
from logitd.attending import Attending
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.ticket import Stages
from logitd.wire.known import ATTENTION
from logitd.wire.message import Message
from logitd_kernels.attention import Answer
from logitd_kernels.errors import BackendUnavailable

router = APIRouter(prefix="/v1", tags=["attention"])

_BODY = json_body(AttentionFields, ATTENTION_SCHEMA, ["q", "k", "v"])


@router.post("/attention", responses=responses(), openapi_extra=request_body(_BODY, ATTENTION))
async def attention(request: Request) -> Response:
    """Attend with the caller's q, k and v, exactly or linearly, and say how wrong each head is."""
    settings: Settings = request.app.state.settings
    attending: Attending = request.app.state.attending
    binary = wants_safetensors(request.headers.get("accept", ""))

    def work(message: Message, stages: Stages) -> Callable[[dict[str, Any]], bytes]:
        with stages("decode"):
            job = attention_job(message, settings, attending.threshold, binary)
        with stages("compute"):
            attended = named(message, lambda: attend_to(attending, job))
        with stages("encode"):
            return attention_answer(job, attended, binary)

    with Exchange(request, attention=True) as exchange:
        return await exchange.answered(ATTENTION, work, binary)


def attend_to(attending: Attending, job: AttentionJob) -> Answer:
    """Attend.

    Raises:
        Invalid: what the mode needs is not there.
    """
    try:
        return attending.attend(job.call, job.wish)
    except BackendUnavailable as error:
        raise Invalid.at("mode", error.reason) from None
