"""One request's way: body received on the loop; decoded, computed and encoded on a compute thread."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from fastapi import Request, Response

from logitd.api.answers import media_type
from logitd.api.body import read_body
from logitd.engine import Stages
from logitd.settings import Settings
from logitd.wire.known import ROWS, Tensors
from logitd.wire.message import Message, decode

Finish = Callable[[dict[str, Any]], bytes]


class Runner(Protocol):
    """Whoever has threads."""

    async def run(self, work: Callable[[Stages], Finish], stages: Stages) -> Finish:
        """Run one request's work off the event loop."""


async def answer(
    request: Request,
    work: Callable[[Message, Stages], Finish],
    binary: bool,
    known: Tensors = ROWS,
    runner: Runner | None = None,
) -> Response:
    """Receive, decode, and answer a tensor request.

    Args:
        request: the request, its body unread.
        work: turns the decoded message into the answer's encoder; runs on a compute thread.
        binary: whether the answer is safetensors rather than JSON.
        known: the tensors of the endpoint.
        runner: on whose threads; None is the engine.
    """
    runner = runner or request.app.state.engine
    decoded, stages = await received(request, known)
    finish = await runner.run(lambda stages: work(decoded(stages), stages), stages)
    return Response(finish(stages.seconds), media_type=media_type(binary))


async def received(request: Request, known: Tensors = ROWS) -> tuple[Callable[[Stages], Message], Stages]:
    """Receive a request's body.

    Returns:
        What decodes it, for a compute thread to call, and the request's stages so far.
    """
    settings: Settings = request.app.state.settings
    began = time.perf_counter()
    body = await read_body(request, settings)
    content_type, query = request.headers.get("content-type"), request.query_params.multi_items()

    def decoded(stages: Stages) -> Message:
        with stages("decode"):
            return decode(content_type, body, query, settings.max_json_bytes, known)

    return decoded, Stages(read_seconds=time.perf_counter() - began)
