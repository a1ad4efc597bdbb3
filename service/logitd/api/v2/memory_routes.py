"""System shared memory: register, status, unregister. That of CUDA there is none, which its clients are told."""

from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.body import read_body
from logitd.api.problems import refusals, responses
from logitd.api.v2.routing import plain
from logitd.api.v2.sharing import refusals_counted, shared_memory
from logitd.errors import Disabled, Malformed, NotFound
from logitd.settings import Settings
from logitd.wire import json as wire_json
from logitd.wire.oip.entries import natural

Json = dict[str, Any]

router = APIRouter(prefix="/v2", tags=["open inference protocol"])

_SYSTEM = "/systemsharedmemory"
_CUDA = "/cudasharedmemory"
_MAX_BODY_BYTES = 4096
_KNOWN = ("key", "offset", "byte_size")


@router.post(f"{_SYSTEM}/region/{{region}}/register", response_class=Response, responses=responses(NotFound, Disabled))
async def register(request: Request) -> Response:
    """Register shared memory that the caller has made, as a region that requests may name."""
    plain(request)
    with refusals_counted(request):
        regions = shared_memory(request)
        settings: Settings = request.app.state.settings
        small = {"max_body_bytes": _MAX_BODY_BYTES, "max_chunked_body_bytes": _MAX_BODY_BYTES}
        body = await read_body(request, settings.model_copy(update=small))  # nobody counts it in
        fields = wire_json.parse(memoryview(body))
        unknown = [name for name in fields if name not in _KNOWN]
        if unknown:
            raise Malformed.at(unknown[0][:60], f"unknown; known are {', '.join(_KNOWN)}")
        key = fields.get("key")
        if not isinstance(key, str):
            raise Malformed.at("key", "must be a string")
        regions.register(
            request.path_params["region"],
            key,
            natural(fields.get("offset", 0), "offset"),
            natural(fields.get("byte_size"), "byte_size"),
        )
    return Response()


@router.get(f"{_SYSTEM}/status", responses=refusals(Disabled))
@router.get(f"{_SYSTEM}/region/{{region}}/status", responses=refusals(NotFound, Disabled))
async def status(request: Request) -> list[Json]:
    """Tell what is registered."""
    plain(request)
    return shared_memory(request).status(request.path_params.get("region"))


@router.post(f"{_SYSTEM}/unregister", response_class=Response, responses=refusals(Disabled))
@router.post(f"{_SYSTEM}/region/{{region}}/unregister", response_class=Response, responses=refusals(Disabled))
async def unregister(request: Request) -> Response:
    """Forget a region, or all; requests that use one may finish."""
    plain(request)
    shared_memory(request).unregister(request.path_params.get("region"))
    return Response()


@router.get(f"{_CUDA}/status", include_in_schema=False)
@router.get(f"{_CUDA}/region/{{region}}/status", include_in_schema=False)
async def cuda_status(request: Request) -> list[Json]:
    """Tell that nothing is registered."""
    return []


@router.post(f"{_CUDA}/unregister", response_class=Response, include_in_schema=False)
@router.post(f"{_CUDA}/region/{{region}}/unregister", response_class=Response, include_in_schema=False)
async def cuda_unregister(request: Request) -> Response:
    """Do nothing: there is nothing to forget."""
    return Response()


@router.post(f"{_CUDA}/region/{{region}}/register", include_in_schema=False)
async def cuda_register(request: Request) -> Response:
    """Refuse: memory of a GPU is not shared."""
    raise Disabled("CUDA shared memory is not supported; system shared memory is")
