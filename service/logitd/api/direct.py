"""A shorter way for the routes that are asked most: from the ASGI scope straight to the endpoint.

FastAPI's stack of middleware and parameter solving costs more than sampling a row does, and these endpoints take the
request as it is. They stay routes of the application: it documents them, and answers other methods.
"""

from collections.abc import Iterable

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from logitd.api.problems import CLIENT_GONE, problem, unexpected
from logitd.errors import ServiceError


class Direct:
    """Passes requests for some routes to their endpoints, all others to the application.

    Args:
        app: the application.
        routes: of the application, without parameters in their paths; each endpoint takes the request alone.
    """

    def __init__(self, app: FastAPI, routes: Iterable[APIRoute]) -> None:
        self._app: ASGIApp = app
        self._state = app
        self._routes = {(method, route.path): route for route in routes for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["app"], scope["route"] = self._state, route
        request = Request(scope, receive)
        response = await _answer(route, request)
        await response(scope, receive, send)


async def _answer(route: APIRoute, request: Request) -> Response:
    """Call an endpoint; what it raises becomes the answer that the application would give."""
    try:
        response: Response = await route.endpoint(request)
    except ServiceError as error:
        return problem(error)
    except ClientDisconnect:
        return Response(status_code=CLIENT_GONE)  # nobody reads it; the request is counted under it
    except Exception as error:
        return unexpected(request, error)
    return response
