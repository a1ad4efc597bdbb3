"""Which model a path names."""

from fastapi import Request

from logitd.api.v2.catalogue import find
from logitd.api.v2.models import Model
from logitd.errors import NotFound


def model_of(request: Request) -> Model:
    """Return the model that a request's path names.

    Raises:
        NotFound: there is none, or the path has an encoded slash, which means something else in front of us than here.
    """
    plain(request)
    return find(request.path_params["model"], request.path_params.get("version"))


def plain(request: Request) -> None:
    """Refuse a path in which a slash is encoded.

    Raises:
        NotFound: it has one.
    """
    if b"%2f" in request.scope.get("raw_path", b"").lower():
        raise NotFound("no name has a slash in it")
