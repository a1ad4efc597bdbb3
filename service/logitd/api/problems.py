"""Every refusal as application/problem+json (RFC 9457): the one place that knows status codes.

A document has `type`, `title`, `status`, `detail`, the same detail as string `error` (what Triton clients read), and
`errors`, a list of {path, message}. No value that was sent is repeated at length, and never a tensor.
"""

import http
import logging
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from logitd.errors import (
    DeadlinePassed,
    Invalid,
    Malformed,
    PayloadTooLarge,
    ServiceError,
    Shed,
    SlowBody,
    Unavailable,
    UnsupportedMedia,
)

MEDIA_TYPE = "application/problem+json"

CLIENT_GONE = 499  # nginx's code for a client that left; a label and a log field

_log = logging.getLogger("logitd.problems")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "error"],
    "properties": {
        "type": {"type": "string", "description": "urn:logitd:problem:…, stable."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {"type": "string", "description": "The detail again, for Triton clients."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


def responses(*extra: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of what a body-taking route may refuse with."""
    always = (Malformed, SlowBody, PayloadTooLarge, UnsupportedMedia, Invalid, Shed, Unavailable, DeadlinePassed)
    return refusals(*always, *extra)


def refusals(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of what a route may refuse with."""
    return {error.status: {"description": error.title, "content": {MEDIA_TYPE: {"schema": SCHEMA}}} for error in errors}


def document(error: ServiceError) -> dict[str, Any]:
    """Return a refusal as a problem document."""
    return {
        "type": f"urn:logitd:problem:{error.slug}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "error": error.detail,
        "errors": [{"path": fault.path, "message": fault.message} for fault in error.fields],
    }


def problem(error: ServiceError) -> Response:
    """Render one refusal."""
    wait = error.retry_after_seconds if isinstance(error, Shed) else 1 if isinstance(error, Unavailable) else None
    headers = None if wait is None else {"retry-after": str(wait)}
    return Response(encode(document(error)), error.status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Render every error of the application as a problem document."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return problem(error)

    async def unrouted(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = http.HTTPStatus(error.status_code).phrase
        unrouted_document = {
            "type": "about:blank",
            "title": title,
            "status": error.status_code,
            "detail": str(error.detail),
            "error": str(error.detail),
            "errors": [],
        }
        return Response(encode(unrouted_document), error.status_code, dict(error.headers or {}), MEDIA_TYPE)

    async def failed(request: Request, error: Exception) -> Response:
        return unexpected(request, error)

    async def left(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)  # nobody reads it; the request is counted under it

    app.add_exception_handler(ServiceError, refused)
    app.add_exception_handler(ClientDisconnect, left)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, failed)


def unexpected(request: Request, error: Exception) -> Response:
    """Render an error that nobody foresaw; the log has it."""
    _log.error("unexpected error", exc_info=error, extra={"path": request.url.path})
    answer = problem(ServiceError("an unexpected error; the log has it"))
    answer.headers["connection"] = "close"  # the server ends it after an error that it was not told of
    return answer


def encode(document: dict[str, Any]) -> bytes:
    """Return a problem document as JSON."""
    try:
        return orjson.dumps(document)
    except TypeError:  # a lone surrogate in a caller's field name is not UTF-8: repeat it escaped instead of failing
        return orjson.dumps(_escaped(document))


def _escaped(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
