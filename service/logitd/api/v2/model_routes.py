"""What /v2 tells of each model: its tensors, its configuration, whether it is ready, and its statistics."""

from typing import Any

from fastapi import APIRouter, Request, Response

from logitd.api.problems import refusals
from logitd.api.v2.routing import model_of
from logitd.api.v2.service import check_ready
from logitd.api.v2.statistics import Statistics
from logitd.errors import NotFound, Unavailable
from logitd.settings import Settings

Json = dict[str, Any]

router = APIRouter(prefix="/v2/models", tags=["open inference protocol"])

_MODEL = "/{model}"
_VERSION = "/{model}/versions/{version}"


@router.get("/stats")  # before {model}, which would take it for one
async def all_statistics(request: Request) -> Json:
    """Tell what became of the requests to every model."""
    statistics: Statistics = request.app.state.statistics
    return statistics.told()


@router.get(_MODEL, responses=refusals(NotFound))
@router.get(_VERSION, include_in_schema=False)
async def metadata(request: Request) -> Json:
    """Tell the inputs and outputs of a model."""
    return model_of(request).metadata()


@router.get(f"{_MODEL}/config", responses=refusals(NotFound))
@router.get(f"{_VERSION}/config", include_in_schema=False)
async def config(request: Request) -> Json:
    """Tell the configuration of a model, in Triton's words."""
    settings: Settings = request.app.state.settings
    return model_of(request).config(settings)


@router.get(f"{_MODEL}/ready", response_class=Response, responses=refusals(NotFound, Unavailable))
@router.get(f"{_VERSION}/ready", response_class=Response, include_in_schema=False)
async def ready(request: Request) -> Response:
    """Answer 200 if a model can be asked."""
    model_of(request)
    check_ready(request)
    return Response()


@router.get(f"{_MODEL}/stats", responses=refusals(NotFound))
@router.get(f"{_VERSION}/stats", include_in_schema=False)
async def statistics(request: Request) -> Json:
    """Tell what became of the requests to a model."""
    kept: Statistics = request.app.state.statistics
    return kept.told(model_of(request).name)
