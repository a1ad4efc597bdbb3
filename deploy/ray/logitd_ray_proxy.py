"""What Ray's HTTP proxies put around logitd; they import this, and with it neither torch nor the service."""

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from logitd.api.problems import problem
from logitd.errors import DeadlinePassed, ServiceError, Shed, Unavailable


def refusals() -> list[Middleware]:
    """Return what RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH asks for."""
    return [Middleware(Refusals)]


class Refusals:
    """Tells in logitd's own way what Ray's proxy refuses by itself, as text: too many wait, or no replica answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer unless it is the proxy's own refusal."""
        answered, refused = scope["type"] != "http", None

        async def told(message: Message) -> None:
            nonlocal answered, refused
            if message["type"] == "http.response.start":
                answered, refused = True, _refusal(message)
                if refused is not None:
                    await problem(refused)(scope, receive, send)
            if refused is None:
                await send(message)

        await self._app(scope, receive, told)
        if not answered:  # Ray leaves it at that when a replica dies; uvicorn would say 500, which nobody tries again
            await problem(Unavailable("the replica that had the request is gone"))(scope, receive, send)


def _refusal(start: Message) -> ServiceError | None:
    """Return what an answer that begins so refuses, or None if the application has answered: it refuses in JSON."""
    headers = dict(start["headers"])
    if not headers.get(b"content-type", b"").startswith(b"text/plain"):
        return None
    match start["status"]:
        case 429:
            return Shed("the replicas have all that they can do", int(headers.get(b"retry-after", 1)), "queue_full")
        case 408:
            return DeadlinePassed("no replica answered in time")
        case 503:
            return Unavailable("no replica is ready")
    return None
