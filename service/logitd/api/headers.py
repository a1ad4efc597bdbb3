"""Single headers of a request, without building an object of all of them: a hot route asks for half a dozen."""

from starlette.requests import HTTPConnection


def header(request: HTTPConnection, name: bytes) -> str | None:
    """Return the first header of a name in lower case; None where there is none."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None
