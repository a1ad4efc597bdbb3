"""Sends what is due when it is due, whatever became of what was sent before (an open loop).

Latency counts from when a request was due, not from when it could be sent: a server, or a client, that falls behind is
seen as late and not as less asked ("coordinated omission"). Within a conversation a request is due when the answer
before it is there.
"""

import asyncio
import time
from collections.abc import Sequence
from itertools import cycle

from loadtest.http.profiles.connection import Answer, Connection, Pool
from loadtest.http.profiles.kinds import OK, Kind
from loadtest.http.profiles.record import LEFT, NO_ANSWER, TOO_LATE, Record, Verdict, verdict
from loadtest.http.profiles.schedule import Phase


class Generator:
    """One client of a server.

    Args:
        pool: of connections.
        kinds: by name, in the order of the record.
        order: places of kinds, over and over.
        record: of what becomes of requests.
        timeout_seconds: after which an answer is no longer waited for.
    """

    def __init__(
        self, pool: Pool, kinds: Sequence[Kind], order: Sequence[int], record: Record, timeout_seconds: float
    ) -> None:
        self._pool, self._kinds, self._record = pool, kinds, record
        self._order = cycle(order)
        self._timeout_seconds = timeout_seconds
        self._under_way: set[asyncio.Task[None]] = set()
        self.began = time.perf_counter()
        self.sent = 0

    @property
    def under_way(self) -> int:
        """How many conversations have not ended."""
        return len(self._under_way)

    def restart(self) -> None:
        """Count seconds from now on."""
        self.began = time.perf_counter()

    async def phase(self, phase: Phase) -> None:
        """Send for the length of a phase."""
        began = time.perf_counter()
        place = self._record.begin(phase, began - self.began)
        for seconds in phase.due_seconds():
            due = began + seconds
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            elif self.sent % 16 == 0:
                await asyncio.sleep(0)  # who is late must still read answers
            self._start(due, place)
        if (rest := began + phase.seconds - time.perf_counter()) > 0:
            await asyncio.sleep(rest)

    async def drained(self) -> None:
        """Wait until everything is answered."""
        while self._under_way:
            await asyncio.gather(*self._under_way)

    async def give_up(self) -> None:
        """Leave whatever is not answered."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def closed_loop(self, connections: int, seconds: float) -> float:
        """Ask on some connections, each anew when it is answered; returns answers as expected, a second."""
        began, before = time.perf_counter(), len(self._record)
        place = self._record.begin(Phase("closed loop", seconds, 0.0), began - self.began)

        async def work() -> None:
            while time.perf_counter() < began + seconds:
                await self._converse(time.perf_counter(), next(self._order), place)

        await asyncio.gather(*(work() for _ in range(connections)))
        found = self._record.columns(before)
        return float((found.verdict == Verdict.EXPECTED).sum()) / (time.perf_counter() - began)

    def _start(self, due: float, phase: int) -> None:
        self.sent += 1
        task = asyncio.create_task(self._converse(due, next(self._order), phase))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _converse(self, due: float, kind: int, phase: int) -> None:
        async def ask(request: bytes, expected: frozenset[int] = OK, leave_seconds: float | None = None) -> Answer:
            nonlocal due
            patience = self._timeout_seconds if leave_seconds is None else leave_seconds
            late = TOO_LATE if leave_seconds is None else LEFT
            sent, answer = await self._ask(request, patience, late)
            ended, judged = time.perf_counter(), verdict(answer.status, expected)
            self._record.add(due - self.began, ended - due, sent - due, answer.status, kind, phase, judged)
            due = ended
            return answer

        await self._kinds[kind].talk(ask)

    async def _ask(self, request: bytes, patience_seconds: float, late: int) -> tuple[float, Answer]:
        try:
            connection = await self._pool.take()
        except OSError:
            return time.perf_counter(), Answer(NO_ANSWER)
        sent = time.perf_counter()
        try:
            return sent, await self._answered(connection, request, patience_seconds, late)
        except asyncio.CancelledError:
            connection.abort()  # its answer is still to come
            raise
        finally:
            self._pool.give(connection)

    async def _answered(self, connection: Connection, request: bytes, seconds: float, late: int) -> Answer:
        waiter = connection.ask(request)
        timer = asyncio.get_running_loop().call_later(seconds, _give_up, connection, waiter, Answer(late))
        try:
            return await waiter
        except ConnectionError:
            return Answer(NO_ANSWER)
        finally:
            timer.cancel()


def _give_up(connection: Connection, waiter: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not waiter.done():
        waiter.set_result(answer)
    connection.abort()
