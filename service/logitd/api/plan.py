"""POST /v1/attention/plan: q, k and v of several layers to a mode for every head of each."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.answers import encode_json
from logitd.api.attention_job import admit_work, layer_calls, of_layer, options_of
from logitd.api.attention_schemas import LAYERS_SCHEMA, PlanRequestFields
from logitd.api.exchange import Exchange
from logitd.api.problems import responses
from logitd.api.schemas import check, json_body, request_body
from logitd.settings import Settings
from logitd.ticket import Stages
from logitd.wire.known import LAYERS
from logitd.wire.message import Message
from logitd_kernels.attention import Call, LayerPlan, estimate, plan_layer, saving
from logitd_kernels.attention.plan import METHODS

Json = dict[str, Any]

router = APIRouter(prefix="/v1", tags=["attention"])

_BODY = json_body(PlanRequestFields, LAYERS_SCHEMA, ["layers"])


@router.post("/attention/plan", responses=responses(), openapi_extra=request_body(_BODY, LAYERS))
async def plan(request: Request) -> Response:
    """Say which heads of which layers may be linear within a tolerance, and what that saves.

    The answer can be sent as `plan`, with `layer`, to /v1/attention.
    """
    settings: Settings = request.app.state.settings

    def work(message: Message, stages: Stages) -> Callable[[Json], bytes]:
        with stages("decode"):
            fields = check(PlanRequestFields, message.fields)
            calls = layer_calls(message, fields, settings)
            tried = [(call, method) for call in calls.values() for method in fields.methods or METHODS]
            admit_work([estimate(*one, options_of(fields), fields.audit_rows) for one in tried], settings)
        with stages("compute"):
            plans = {
                layer: of_layer(message, layer, lambda _, call=call: _planned(call, fields))  # type: ignore[misc]
                for layer, call in calls.items()
            }
        with stages("encode"):
            return encode_json(_document(plans, fields.tolerance))

    with Exchange(request, attention=True) as exchange:
        return await exchange.answered(LAYERS, work, False)


def _planned(call: Call, fields: PlanRequestFields) -> LayerPlan:
    return plan_layer(call, fields.tolerance, options_of(fields), fields.methods or METHODS, fields.audit_rows)


def _document(plans: Mapping[int, LayerPlan], tolerance: float) -> Json:
    cost, memory = saving(plans)
    layers = {
        str(layer): {
            "modes": own.modes,
            "heads": [asdict(head) for head in own.heads],
            "cost": own.cost,
            "state_bytes": own.state_bytes,
            "kv_bytes": own.kv_bytes,
        }
        for layer, own in plans.items()
    }
    return {"version": 1, "tolerance": tolerance, "cost": cost, "memory": memory, "layers": layers}
