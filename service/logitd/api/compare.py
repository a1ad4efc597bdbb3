"""POST /v1/attention/compare: every method on the caller's tensors, and what to use for each head."""

from contextlib import ExitStack
from dataclasses import replace
from itertools import compress
from typing import Any

import orjson
import torch
from fastapi import APIRouter, Request, Response

from logitd.api.answers import accepts
from logitd.api.attention_job import admit_work, attention_call, options_of
from logitd.api.attention_schemas import ATTENTION_SCHEMA, CompareFields
from logitd.api.compare_answer import compared, trial_line
from logitd.api.events import EVENTS, Tell, event_stream
from logitd.api.exchange import Exchange
from logitd.api.problems import responses
from logitd.api.requests import named
from logitd.api.schemas import check, json_body, request_body
from logitd.settings import Settings
from logitd.wire import json as wire_json
from logitd.wire.known import ATTENTION
from logitd.wire.message import Message
from logitd_kernels.attention import Call, Feasibility, Trial, contenders, estimate, feasibility, trials
from logitd_kernels.errors import ParameterError

Json = dict[str, Any]

router = APIRouter(prefix="/v1", tags=["attention"])

_BODY = json_body(CompareFields, ATTENTION_SCHEMA, ["q", "k", "v"])
_PASSES = 2  # audits of a trial: of the caller's values, and of the ranks of weights


@router.post("/attention/compare", responses=responses(), openapi_extra=request_body(_BODY, ATTENTION))
async def compare(request: Request) -> Response:
    """Try every method, and say for each head how wrong it is, what it costs and what to use.

    With `Accept: text/event-stream` every trial is an event `progress`, and the answer the event `result`.
    """
    settings: Settings = request.app.state.settings
    with ExitStack() as place:
        exchange = place.enter_context(Exchange(request, attention=True))
        decoded, stages = await exchange.undecoded(ATTENTION), exchange.stages

        async def work(tell: Tell) -> Json:
            def run() -> Json:
                with stages("decode"):
                    message = decoded()
                with stages("compute"):
                    return _compared(message, settings, tell)

            return {**await exchange.attended(run), "seconds": stages.seconds}

        if accepts(request.headers.get("accept", ""), EVENTS):
            return event_stream(work, place.pop_all())
        result = await work(lambda event, data: None)
    return Response(orjson.dumps(result), media_type=wire_json.MEDIA_TYPE)


def _compared(message: Message, settings: Settings, tell: Tell) -> Json:
    fields = check(CompareFields, message.fields)
    call = attention_call(message, fields, settings)
    tried = named(message, lambda: contenders(call, fields.methods, fields.feature_dims))
    options, rows = options_of(fields), _PASSES * fields.audit_rows
    costs = [estimate(call, one.method, replace(options, feature_dim=one.feature_dim), rows) for one in tried]
    if fields.methods is None:  # nobody asked for those that are too large for this call
        within = [cost.memory <= settings.max_attention_memory_bytes for cost in costs]
        tried, costs = list(compress(tried, within)), list(compress(costs, within))
    admit_work(costs, settings)
    done: list[Trial] = []

    def run() -> list[Trial]:
        for trial in trials(call, tried, options, fields.audit_rows):
            done.append(trial)
            tell("progress", {"done": len(done), "total": len(tried), **trial_line(trial)})
        return done

    named(message, run)
    return compared(call, done, _predicted(call), fields.tolerance)


def _predicted(call: Call) -> Feasibility:
    """Return what second order is predicted to do; unbounded where its numbers pass what it computes in."""
    try:
        return feasibility(call)
    except ParameterError:
        unbounded = torch.full((call.batch, call.heads), torch.inf)
        return Feasibility(unbounded, unbounded, unbounded)
