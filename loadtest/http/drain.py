"""A bare ASGI application that drains bodies: `python -m loadtest.http.drain stock|logitd PORT`."""

import sys
from typing import Any

import uvicorn

_ANSWER = b"0"


async def stock(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401  (ASGI's own types)
    """Count the bytes of a body as uvicorn hands them over."""
    if scope["type"] != "http":
        return
    more, size = True, 0
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await _answer(send)


class InPlace:
    """Receive each body in one piece of memory, as the service does."""

    def __init__(self) -> None:
        self._memory = bytearray(1 << 24)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        """Take in a body whose length is declared."""
        if scope["type"] != "http":
            return
        size = next(int(value) for name, value in scope["headers"] if name == b"content-length")
        with memoryview(self._memory) as memory:
            await scope["extensions"]["logitd.receive_into"](memory[:size])
        await _answer(send)


async def _answer(send: Any) -> None:  # noqa: ANN401
    length = str(len(_ANSWER)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": _ANSWER})


def main() -> None:
    """Serve until SIGTERM."""
    protocol, port = sys.argv[1], int(sys.argv[2])
    options: dict[str, Any] = {"http": "httptools"}
    application: Any = stock
    if protocol != "stock":
        from logitd.server import http_protocol
        from logitd.settings import Settings

        options, application = {"http": http_protocol(Settings())}, InPlace()
    uvicorn.run(application, port=port, loop="uvloop", access_log=False, log_config=None, lifespan="off", **options)


if __name__ == "__main__":
    main()
