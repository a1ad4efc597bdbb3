"""One tensor request from headers to answer: let in, received, decoded, computed, encoded, all within its time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from logitd.admission import Admission, Permit
from logitd.api.answers import answer_of
from logitd.api.body import declared_length, read_body
from logitd.api.deadline import deadline_of
from logitd.api.headers import header
from logitd.attending import Attending
from logitd.engine import Engine
from logitd.errors import DeadlinePassed, PayloadTooLarge, ServiceError, Shed, SlowBody, Unavailable
from logitd.metrics import Metrics
from logitd.settings import Settings
from logitd.ticket import STAGES_OF, Stages
from logitd.waiting import within
from logitd.wire.known import ROWS, Tensors
from logitd.wire.message import Message, Undecoded
from logitd.work import Work
from logitd_kernels.backends import Backend

T = TypeVar("T")
Finish = Callable[[dict[str, Any]], bytes]

HEAVY_BYTES = 1 << 16  # of JSON: parsing it would hold the event loop for a millisecond
HEAVY_ROWS = 64  # checked and encoded one by one

_REJECTED: dict[type[ServiceError], str] = {
    DeadlinePassed: "deadline",
    PayloadTooLarge: "body_too_large",
    SlowBody: "slow_body",
    Unavailable: "unavailable",
}


class Exchange:
    """One request on its way; as a context it is let in before its body is read, and what becomes of it is counted.

    Args:
        request: its body unread until `body` or `message`.
        attention: whether it will want attention's threads.

    Attributes:
        settings: of the service.
        stages: where its time goes.
        deadline: on time.monotonic.
        doing: for who counts those that leave.
    """

    _permit: Permit
    _declared_bytes: int | None  # of its body; None for one in chunks

    def __init__(self, request: Request, *, attention: bool = False) -> None:
        state = request.app.state
        self.request = request
        self.settings: Settings = state.settings
        self.stages: Stages = state.stages()
        request.scope[STAGES_OF] = self.stages
        self.deadline = 0.0
        self.doing = "reading"
        self._engine: Engine = state.engine
        self._metrics: Metrics = state.metrics
        self._admission: Admission = state.admission
        self._attending: Attending = state.attending
        self._attention = attention

    def __enter__(self) -> Self:
        """Let it in.

        Raises:
            Shed, Unavailable: there is no room for it now.
            DeadlinePassed: its time is 0.
            PayloadTooLarge: its declared length.
            Malformed: an unreadable length or timeout.
        """
        try:
            self._enter()
        except ServiceError as error:
            self._left(error)
            raise
        return self

    def _enter(self) -> None:
        self.deadline = deadline_of(self.request, self.settings)
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise DeadlinePassed("the request has no time at all")
        if self._attention:
            self._attending.check_room()
        self._declared_bytes = declared_length(self.request, self.settings)
        self._permit = self._admission.entered(self._declared_bytes, seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._permit.leave(answered=error is None)
        self._left(error)

    def _left(self, error: BaseException | None) -> None:
        """Count what became of it."""
        if isinstance(error, ClientDisconnect):
            self._metrics.cancelled(self.doing)
        elif isinstance(error, ServiceError):
            reason = error.reason if isinstance(error, Shed) else _REJECTED.get(type(error))
            if reason is not None:
                self._metrics.rejected(reason)
        self._metrics.stages(self.stages.seconds)

    @property
    def backend(self) -> Backend:
        """Where rows are sampled."""
        return self._engine.backend

    async def body(self) -> Any:  # noqa: ANN401  (bytes-like)
        """Receive the body."""
        with self.stages("read"):
            body = await read_body(self.request, self.settings, self._permit.hold, self.deadline - time.monotonic())
        self.doing, self.stages.body_bytes = "queued", len(body)
        if not self._attention:
            self._permit.compete()
        return body

    async def message(self, known: Tensors = ROWS) -> Message:
        """Receive and decode the body."""
        return await self.decoded(await self.undecoded(known))

    async def undecoded(self, known: Tensors = ROWS) -> Undecoded:
        """Receive the body."""
        request = self.request
        content_type = header(request, b"content-type")
        query = request.query_params.multi_items() if request.scope["query_string"] else ()
        most, declared = self.settings.max_json_bytes, self._declared_bytes or 0
        if declared > most and "json" in (content_type or "").lower():
            raise PayloadTooLarge.at(
                "body", f"JSON is capped at {most} bytes, {declared} are declared; send safetensors"
            )
        return Undecoded(content_type, await self.body(), query, most, known)

    async def decoded(self, undecoded: Undecoded) -> Message:
        """Decode a body."""
        heavy = not undecoded.is_binary and self.stages.body_bytes > HEAVY_BYTES
        return await self.off_loop("decode", undecoded, heavy=heavy)

    async def off_loop(self, stage: str, work: Callable[[], T], *, heavy: bool) -> T:
        """Do something as part of a stage: here, or on another thread if it would hold the event loop."""

        def timed() -> T:
            with self.stages(stage):
                return work()

        return await self.wait(self._engine.aside(timed)) if heavy else timed()

    async def computed(self, work: Work) -> Sequence[Any]:
        """Compute some work: here if it is light, else queued behind what was there before."""
        if work.is_light:
            with self.stages("compute"):
                return self._engine.at_once(work)
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

        return answer_of(await self.attended(run), binary)

    async def attended(self, work: Callable[[], T]) -> T:
        """Run attention's work on its threads. The work accounts for its own stages."""
        submitted = time.perf_counter()

        def timed() -> T:
            self.doing = "computing"
            self.stages.seconds["queue"] = time.perf_counter() - submitted
            return work()

        return await self.wait(self._attending.submit(timed))

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
        return answer_of(content, binary)
