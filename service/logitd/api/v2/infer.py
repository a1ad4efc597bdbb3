"""POST /v2/models/{model}/infer: the same computations as /v1, in the protocol's form."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.exchange import HEAVY_BYTES, HEAVY_ROWS, Exchange
from logitd.api.headers import header
from logitd.api.problems import responses
from logitd.api.v2.catalogue import MODELS
from logitd.api.v2.compression import SMALLEST_BYTES, chosen, compressed
from logitd.api.v2.computing import OPERATIONS, Asked, Computed
from logitd.api.v2.models import VERSION, Model
from logitd.api.v2.outputs import sent_outputs
from logitd.api.v2.routing import model_of
from logitd.api.v2.sharing import reader, regions_of
from logitd.api.v2.statistics import Statistics
from logitd.errors import Disabled, Malformed, NotFound
from logitd.settings import Settings
from logitd.wire.oip.answer import encode
from logitd.wire.oip.request import HEADER_LENGTH, InferRequest, header_length, parse, raw

router = APIRouter(prefix="/v2", tags=["open inference protocol"])

_HEAVY_NUMBERS = 1 << 14  # writing so many takes longer than handing them to another thread
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post("/models/{model}/infer", responses=responses(NotFound, Disabled), openapi_extra=_BODY)
@router.post("/models/{model}/versions/{version}/infer", include_in_schema=False)
async def infer(request: Request) -> Response:
    """Answer an infer request. A bad row fails alone: its STATUS says why, and the request succeeds."""
    return await _counted(request, model_of(request))


async def _counted(request: Request, model: Model) -> Response:
    statistics: Statistics = request.app.state.statistics
    counts = statistics.of(model.name)
    began = time.perf_counter()
    try:
        with Exchange(request) as exchange:
            response, rows = await _answered(exchange, model)
    except BaseException:  # whoever leaves is counted too
        counts.failed(time.perf_counter() - began)
        raise
    counts.succeeded(rows, time.perf_counter() - began, exchange.stages.seconds)
    return response


def _of(model: Model) -> Callable[[Request], Awaitable[Response]]:
    async def infer(request: Request) -> Response:
        return await _counted(request, model)

    return infer


# Each model's own path too, for `Direct`, which takes no path with a parameter in it.
direct = APIRouter(prefix="/v2/models", include_in_schema=False)
for _model in MODELS.values():
    direct.add_api_route(f"/{_model.name}/infer", _of(_model), methods=["POST"])
DIRECT_PATHS = tuple(f"/v2/models/{name}/infer" for name in MODELS)


async def _answered(exchange: Exchange, model: Model) -> tuple[Response, int]:
    request, settings = exchange.request, exchange.settings
    body = memoryview(await exchange.body()).cast("B")
    length = _json_bytes(request, len(body))
    heavy = (len(body) if length is None else length) > HEAVY_BYTES
    infer_request = await exchange.off_loop("decode", lambda: _parsed(body, length, model, settings), heavy=heavy)
    if infer_request.timeout_microseconds:
        exchange.deadline = min(exchange.deadline, time.monotonic() + infer_request.timeout_microseconds / 1e6)
    with regions_of(request, infer_request, len(body)) as regions:
        asked = Asked(model, infer_request, regions, reader(regions, request.app.state.staging), heavy)
        computed = await OPERATIONS[model.operation](exchange, asked)
        many = computed.rows > HEAVY_ROWS or computed.numbers > _HEAVY_NUMBERS
        encoded = await exchange.off_loop("encode", lambda: _encoded(exchange, asked, computed), heavy=many)
    return encoded, computed.rows


def _encoded(exchange: Exchange, asked: Asked, computed: Computed) -> Response:
    """Put the outputs where they are to go, and return the answer."""
    infer_request = asked.request
    sent = sent_outputs(infer_request, computed.outputs(), asked.regions, exchange.settings.max_json_bytes)
    answer = encode(asked.model.name, VERSION, infer_request.id, sent)
    headers = {} if answer.json_bytes is None else {HEADER_LENGTH: str(answer.json_bytes)}
    encoding = chosen(header(exchange.request, b"accept-encoding") or "")
    if encoding is None or len(answer.body) <= SMALLEST_BYTES:
        return Response(answer.body, headers=headers, media_type=answer.media_type)
    headers["content-encoding"] = encoding
    return Response(compressed(answer.body, encoding), headers=headers, media_type=answer.media_type)


def _json_bytes(request: Request, body_bytes: int) -> int | None:
    if (header(request, b"content-type") or "").lower().startswith("multipart/"):
        raise Malformed.at("content-type", f"multipart does not go with {HEADER_LENGTH} and binary data behind JSON")
    return header_length(request.headers.getlist(HEADER_LENGTH), body_bytes)


def _parsed(body: memoryview, length: int | None, model: Model, settings: Settings) -> InferRequest:
    if length != 0:
        return parse(body, length, settings.max_json_bytes)
    if model.only_input is None:
        raise Malformed.at(HEADER_LENGTH, f"0 says that the body is one input, and model {model.name} needs several")
    return raw(body, model.only_input)
