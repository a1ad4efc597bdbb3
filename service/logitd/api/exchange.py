"""One tensor request from headers to answer: let in, received, decoded, computed, encoded, all within its time."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from logitd.admission import Admission, Permit
from logitd.api.answers import media_type
from logitd.api.body import declared_length, read_body
from logitd.attending import Attending
from logitd.engine import Engine
from logitd.errors import DeadlinePassed, Malformed, PayloadTooLarge, ServiceError, Shed, SlowBody, Unavailable
from logitd.metrics import Metrics
from logitd.settings import Settings
from logitd.ticket import Stages
from logitd.waiting import within
from logitd.wire.known import ROWS, Tensors
from logitd.wire.message import Message, decode
from logitd.work import Work

T = TypeVar("T")
Finish = Callable[[dict[str, Any]], bytes]

HEAVY_BYTES = 1 << 16  # of JSON: parsing it would hold the event loop for a millisecond
HEAVY_ROWS = 64  # checked and encoded one by one

_TIMEOUT_HEADERS = ("x-request-timeout-ms", "x-envoy-expected-rq-timeout-ms")
_MILLISECONDS = re.compile(r"[0-9]{1,9}")
_REJECTED: dict[type[ServiceError], str] = {
    DeadlinePassed: "deadline",
    PayloadTooLarge: "too_large",
    SlowBody: "slow_body",
    Unavailable: "unavailable",
}


class Exchange:
    """One request on its way.

    Attributes:
        request: its body unread until `body` or `message`.
        settings: of the service.
        stages: where its time goes.
        deadline: on time.monotonic.
    """

    def __init__(self, request: Request, deadline: float) -> None:
        self.request, self.deadline = request, deadline
        self.settings: Settings = request.app.state.settings
        self.stages = Stages()
        self.body_bytes = 0
        self.permit: Permit | None = None  # of one that competes once its body is there
        self.doing = "reading"  # for who counts those that leave
        self._engine: Engine = request.app.state.engine

    async def body(self) -> Any:  # noqa: ANN401  (bytes-like)
        """Receive the body."""
        with self.stages("read"):
            body = await read_body(self.request, self.settings)
        self.doing, self.body_bytes = "queued", len(body)
        if self.permit is not None:
            self.permit.compete()
        return body

    async def message(self, known: Tensors = ROWS) -> Message:
        """Receive and decode the body."""
        decoded = await self.undecoded(known)
        binary = "json" not in self.request.headers.get("content-type", "json").lower()
        return await self.off_loop("decode", decoded, heavy=not binary and self.body_bytes > HEAVY_BYTES)

    async def undecoded(self, known: Tensors = ROWS) -> Callable[[], Message]:
        """Receive the body; return what decodes it, for another thread to call."""
        content_type, query = self.request.headers.get("content-type"), self.request.query_params.multi_items()
        most, declared = self.settings.max_json_bytes, declared_length(self.request, self.settings) or 0
        if declared > most and "json" in (content_type or "").lower():
            raise PayloadTooLarge.at(
                "body", f"JSON is capped at {most} bytes, {declared} are declared; send safetensors"
            )
        body = await self.body()
        return lambda: decode(content_type, body, query, self.settings.max_json_bytes, known)

    async def off_loop(self, stage: str, work: Callable[[], T], *, heavy: bool) -> T:
        """Do something as part of a stage: here, or on another thread if it would hold the event loop."""

        def timed() -> T:
            with self.stages(stage):
                return work()

        return await self.wait(self._engine.aside(timed)) if heavy else timed()

    async def computed(self, work: Work) -> list[Any]:
        """Compute some work, queued behind what was there before."""
        ticket = self._engine.submit(work, self.deadline)
        try:
            return await self.wait(ticket.future)
        finally:
            if ticket.is_begun:
                self.doing = "computing"
            if ticket.began is not None:
                self.stages.seconds["queue"] = ticket.began - ticket.submitted
                self.stages.seconds["compute"] = ticket.ended - ticket.began

    async def answered(self, known: Tensors, work: Callable[[Message, Stages], Finish], binary: bool) -> Response:
        """Receive the body, and do all the rest on attention's threads.

        Args:
            known: the tensors of the endpoint.
            work: turns the decoded message into the answer's encoder.
            binary: whether the answer is safetensors rather than JSON.
        """
        decoded = await self.undecoded(known)

        def run() -> bytes:
            with self.stages("decode"):
                message = decoded()
            return work(message, self.stages)(self.stages.seconds)

        return Response(await self.attended(run), media_type=media_type(binary))

    async def attended(self, work: Callable[[], T]) -> T:
        """Run attention's work on its threads. The work accounts for its own stages."""
        attending: Attending = self.request.app.state.attending
        submitted = time.perf_counter()

        def timed() -> T:
            self.doing = "computing"
            self.stages.seconds["queue"] = time.perf_counter() - submitted
            return work()

        return await self.wait(attending.submit(timed))

    async def wait(self, future: "asyncio.Future[T]") -> T:
        """Wait for a future as long as the request has, and somebody wants its answer."""
        return await within(future, self.request.receive, self.deadline)

    async def response(self, encode: Callable[[], Finish], binary: bool, *, heavy: bool) -> Response:
        """Encode the answer. The stage seconds go into it, so that its own come last."""

        def encoded() -> bytes:
            with self.stages("encode"):
                finish = encode()
            return finish(self.stages.seconds)

        content = await self.wait(self._engine.aside(encoded)) if heavy else encoded()
        return Response(content, media_type=media_type(binary))


@contextmanager
def admitted(request: Request, *, attention: bool = False) -> Iterator[Exchange]:
    """Let a request in before its body is read, and count what becomes of it.

    Args:
        request: its body unread.
        attention: whether it will want attention's threads.
    Raises:
        Shed, Unavailable: there is no room for it now.
        DeadlinePassed: its time is 0.
        PayloadTooLarge: its declared length.
        Malformed: an unreadable length or timeout.
    """
    metrics: Metrics = request.app.state.metrics
    attending: Attending = request.app.state.attending
    admission: Admission = request.app.state.admission
    deadline = deadline_of(request)
    exchange = Exchange(request, deadline)
    try:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise DeadlinePassed("the request has no time at all")
        if attention:
            attending.check_room()
        with admission.entered(declared_length(request, exchange.settings), seconds) as permit:
            exchange.permit = None if attention else permit
            yield exchange
    except ClientDisconnect:
        metrics.cancelled(exchange.doing)
        raise
    except ServiceError as error:
        reason = error.reason if isinstance(error, Shed) else _REJECTED.get(type(error))
        if reason is not None:
            metrics.rejected(reason)
        raise
    finally:
        metrics.stages(exchange.stages.seconds)


def deadline_of(request: Request) -> float:
    """Return when the time of a request is over, on time.monotonic: the shortest of what the headers and we say.

    Raises:
        Malformed: a header that is no whole number of milliseconds.
    """
    settings: Settings = request.app.state.settings
    seconds = settings.request_timeout_seconds
    for name in _TIMEOUT_HEADERS:
        sent = request.headers.get(name)
        if sent is not None:
            sent = sent.rstrip(" \t")
            if not _MILLISECONDS.fullmatch(sent):
                raise Malformed.at(name, f"expected a whole number of milliseconds, got {sent[:40]!r}")
            seconds = min(seconds, int(sent) / 1000)
    return time.monotonic() + seconds
