"""Waiting for work on behalf of a client: until it is done, its time is over, or the client has left."""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from logitd.errors import DeadlinePassed

T = TypeVar("T")

_NICENESS = 5
_WATCH_AFTER_SECONDS = 0.01  # most work is done sooner; watching a connection costs a task


def yield_to_others() -> None:
    """Let the event loop go first where cores are short: the calling thread, and threads that it starts, are nicer.

    Only Linux has niceness by thread; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def yielding(start: Callable[[], None]) -> None:
    """Call what starts threads so that these are nicer than the calling one."""

    def run() -> None:
        yield_to_others()
        start()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def on_pool(pool: Executor, work: Callable[[], T]) -> "asyncio.Future[T]":
    """Run something on a pool; cancelled before its turn it is never run."""
    return asyncio.wrap_future(pool.submit(work))


class _Patience(Generic[T]):
    """Who waits for a future, and why no longer."""

    def __init__(self, future: "asyncio.Future[T]", receive: Receive) -> None:
        self._future, self._receive = future, receive
        self._watch: asyncio.Task[None] | None = None
        self.reason: Exception | None = None

    def expire(self) -> None:
        self._end(DeadlinePassed("the request was not answered within its time"))

    def watch(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._until_left())

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._future.cancel()

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(ClientDisconnect())

    def _end(self, reason: Exception) -> None:
        if not self._future.done():
            self.reason = reason
            self._future.cancel()


async def within(future: "asyncio.Future[T]", receive: Receive, deadline: float | None = None) -> T:
    """Wait for a future, and cancel it where it is not needed any more.

    Args:
        future: of the work.
        receive: the request's, its body read: all it can tell is that the client left.
        deadline: on time.monotonic.
    Raises:
        DeadlinePassed: the time is over; at the deadline, not when the work would have ended.
        ClientDisconnect: the client left.
    """
    if future.done():
        return future.result()
    loop, patience = asyncio.get_running_loop(), _Patience(future, receive)
    timers = [loop.call_later(_WATCH_AFTER_SECONDS, patience.watch)]
    if deadline is not None:
        timers.append(loop.call_later(max(0.0, deadline - time.monotonic()), patience.expire))
    try:
        return await future
    except asyncio.CancelledError:
        if patience.reason is None:
            raise
        raise patience.reason from None
    finally:
        for timer in timers:
            timer.cancel()
        patience.stop()
