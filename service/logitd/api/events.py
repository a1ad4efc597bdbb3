"""Server-sent events: what a request's work tells while it runs, then its result or why there is none."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import orjson
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from logitd.api.problems import document, encode
from logitd.errors import ServiceError

EVENTS = "text/event-stream"

Json = dict[str, Any]
Tell = Callable[[str, Json], None]

_log = logging.getLogger("logitd.events")


class ReaderLeftError(ClientDisconnect):
    """Nobody reads the events any more: raised out of `tell`, it ends the work."""


def event_stream(work: Callable[[Tell], Awaitable[Json]], held: ExitStack) -> StreamingResponse:
    """Start some work, and answer with its events.

    Args:
        work: takes `tell(event, data)`, which any thread may call, and returns the event `result`. A refusal becomes
            the event `error`, a problem document.
        held: closed when the work has ended, whether or not anybody reads.
    """
    loop, queue, left = asyncio.get_running_loop(), asyncio.Queue[bytes | None](), threading.Event()

    def tell(event: str, data: Json) -> None:
        if left.is_set():
            raise ReaderLeftError
        loop.call_soon_threadsafe(queue.put_nowait, _event(event, orjson.dumps(data)))

    async def run() -> None:
        try:
            with held:
                result = await work(tell)
            queue.put_nowait(_event("result", orjson.dumps(result)))
        except ServiceError as error:
            queue.put_nowait(_event("error", encode(document(error))))
        except ClientDisconnect:
            pass
        except Exception as error:
            _log.error("unexpected error", exc_info=error)
            queue.put_nowait(_event("error", encode(document(ServiceError("an unexpected error; the log has it")))))
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(run())

    async def events() -> AsyncIterator[bytes]:
        try:
            while (event := await queue.get()) is not None:
                yield event
            await task
        finally:
            left.set()

    return StreamingResponse(events(), media_type=EVENTS, headers={"cache-control": "no-store"})


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
