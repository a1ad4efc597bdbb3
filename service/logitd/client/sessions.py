"""Streaming sessions: attention over one sequence that comes in pieces. Blocking, and the twin for asyncio."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, Self

from logitd.client.connections import AsyncConnection, Connection
from logitd.client.request import Call
from logitd.client.session_answer import Opened, Output, Standing, Step
from logitd.client.session_call import append_call, delete_call, export_call, query_call, show_call
from logitd.errors import ClientError, InvalidRequest, SessionGone


class Steps:
    """What a session's client remembers: where the session stands, and an append whose answer did not come.

    Such an append may have been taken in. Another one under the same number would be given its answer and be lost, so
    it is refused here until the first is repeated and answered.

    Attributes:
        id: the only key to the session.
        step, tokens, state_bytes: steps taken, tokens taken in and bytes kept, after the last append.
    """

    def __init__(self, opened: Opened) -> None:
        self.id = opened.id
        self._unanswered: bytes | None = None
        self._stand(opened.standing)

    @contextmanager
    def _sending(self, call: Call[Step]) -> Iterator[None]:
        if self._unanswered not in (None, call.body):
            raise ValueError("the last append may have been taken in: repeat it, with the same tensors, before another")
        self._unanswered = call.body
        try:
            yield
        except InvalidRequest as error:  # and nothing else says that it was not taken in
            if error.status != HTTPStatus.REQUEST_TIMEOUT:  # which a second try may meet when the first was
                self._unanswered = None
            raise

    def _took(self, step: Step) -> Output | None:
        self._unanswered = None
        self._stand(step.standing)
        return step.output

    def _stand(self, standing: Standing) -> None:
        self.step, self.tokens, self.state_bytes = standing.step, standing.tokens, standing.state_bytes


class Session(Steps):
    """A sequence that the service keeps. `Client.attention_session` opens one; leaving its block deletes it.

        with client.attention_session(heads=8, dim=64) as session:
            output = session.append(k, v, q)

    Threads may share it: appends are made one after the other. Every method raises `SessionGone` when the service no
    longer has the session, and what those of `Client` raise.
    """

    def __init__(self, connection: Connection, opened: Opened) -> None:
        super().__init__(opened)
        self._connection = connection
        self._lock = threading.Lock()

    def append(self, k: object, v: object, q: object = None) -> Output | None:
        """Take in T tokens; the last R of them may ask, each of what came up to itself.

        Steps are counted, so that one whose answer was lost is sent again without being taken in twice. After a failure
        that leaves this open (no answer, a 408, a 5xx) repeat the same append; any other is refused until then.

        Args:
            k: [Hkv, T, d] keys; float32, float16, bfloat16 or float64, numpy's or torch's. [Hkv, d] is one token.
            v: [Hkv, T, dv] values.
            q: [Hq, R, d] queries, R ≤ T; None to take in alone.
        Returns:
            [Hq, R, dv] float32, [Hq, dv] where the tensors lack T; None without q.
        Raises:
            InvalidRequest: with status 409 the session is full, or somebody else appended to it.
            ValueError: shapes that cannot be sent, or another append is still without an answer.
        """
        with self._lock:
            call = append_call(self.id, self.step, k, v, q)
            with self._sending(call):
                return self._took(self._connection.run(call))

    def query(self, q: object) -> Output:
        """Ask of everything so far, which does not change: [Hq, R, d] -> [Hq, R, dv] float32; zeros at the start."""
        return self._connection.run(query_call(self.id, q))

    def export(self) -> bytes:
        """Return the state as a file, from which `Client.import_session` continues on the same bits."""
        return self._connection.run(export_call(self.id))

    def info(self) -> dict[str, Any]:
        """Return what the service tells of the session: method, step, tokens, bytes, and how long it may be idle."""
        return self._connection.run(show_call(self.id))

    def delete(self) -> None:
        """End the session; one that is gone already is as well."""
        with suppress(SessionGone):
            self._connection.run(delete_call(self.id))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(*_unheard(kind)):
            self.delete()


class AsyncSession(Steps):
    """`Session` for asyncio: same arguments, methods and errors.

    async with await client.attention_session(heads=8, dim=64) as session:
        output = await session.append(k, v, q)
    """

    def __init__(self, connection: AsyncConnection, opened: Opened) -> None:
        super().__init__(opened)
        self._connection = connection
        self._lock = asyncio.Lock()

    async def append(self, k: object, v: object, q: object = None) -> Output | None:
        """Take in tokens, and answer the queries of the last of them: see `Session.append`."""
        async with self._lock:
            call = await asyncio.to_thread(append_call, self.id, self.step, k, v, q)  # megabytes may be copied
            with self._sending(call):
                return self._took(await self._connection.run(call))

    async def query(self, q: object) -> Output:
        """Ask of everything so far: see `Session.query`."""
        return await self._connection.run(query_call(self.id, q))

    async def export(self) -> bytes:
        """Return the state as a file: see `Session.export`."""
        return await self._connection.run(export_call(self.id))

    async def info(self) -> dict[str, Any]:
        """Return what the service tells of the session: see `Session.info`."""
        return await self._connection.run(show_call(self.id))

    async def delete(self) -> None:
        """End the session; one that is gone already is as well."""
        with suppress(SessionGone):
            await self._connection.run(delete_call(self.id))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(*_unheard(kind)):
            await self.delete()


def _unheard(kind: type[BaseException] | None) -> tuple[type[ClientError], ...]:
    """Return the errors of a deletion that shall not hide what ended the block; the session then expires by itself."""
    return () if kind is None else (ClientError,)
