"""A server that ends without losing what it accepted: not ready, answers that close, accepted work, then the end."""

import asyncio
import gc
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from logitd.lifecycle import Lifecycle

_SIGNALLED = 128  # a shell's exit status for a process that a signal ended, less its number
_TICK_SECONDS = 0.02
_LINGER_SECONDS = 0.2  # for a request that is on its way on a connection that is idle
_LEAVING_SECONDS = 0.5  # for the application to hear that a client is gone
_GOODBYE_SECONDS = 1.0  # for refusals to reach those who are cut

_log = logging.getLogger("logitd.server")


class DrainingServer(uvicorn.Server):
    """Uvicorn with a stop of our own.

    On SIGTERM or SIGINT: not ready at once, and `Connection: close` on every answer; goes on accepting for
    `drain_seconds`; stops accepting; finishes what it has for at most `shutdown_seconds`. What is left then is refused
    (503) or cut, and the process ends with 1. A second signal ends the process at once.

    Args:
        config: uvicorn's.
        lifecycle: is told, and tells readiness and the answers.
        drain_seconds, shutdown_seconds: see above.
        last: called before a process is ended without its ordinary end.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        lifecycle: Lifecycle,
        drain_seconds: float,
        shutdown_seconds: float,
        last: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._drain_seconds = drain_seconds
        self._shutdown_seconds = shutdown_seconds
        self._last = last

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain, or, the second time, end the process."""
        if self.should_exit:
            self._end(_SIGNALLED + sig)
        self._lifecycle.drain()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen; what is in memory by then stays, and no collection looks at it again."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # a full collection of all that is imported takes 0.2 s, in which no thread gets a word in

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then stop the application."""
        self._lifecycle.drain()
        requests = len(self.server_state.tasks)
        _log.info("draining", extra={"requests": requests, "drain_seconds": self._drain_seconds})
        await self._until(self._drain_seconds, lambda: False)
        await self._stop_accepting(sockets or [])
        connections = self.server_state.connections
        await self._until(_LINGER_SECONDS, lambda: not connections)
        for connection in list(connections):
            connection.shutdown()
        if await self._until(self._shutdown_seconds, self._idle):
            await self.lifespan.shutdown()
            return
        cut = len(connections)
        await self._cut()
        _log.error("requests were cut", extra={"requests": cut, "shutdown_seconds": self._shutdown_seconds})
        self._end(1)  # the ordinary end would wait for threads that still compute for them

    async def _cut(self) -> None:
        """Have what is left refused. Who has a part of an answer could not tell a refusal from the rest: cut off."""
        tasks = self.server_state.tasks
        begun = [connection for connection in self.server_state.connections if _is_answering(connection)]
        for connection in begun:
            connection.transport.abort()
        others = len(tasks) - len(begun)
        await self._until(_LEAVING_SECONDS, lambda: len(tasks) <= others)
        for task in tasks:
            task.cancel()
        await self._until(_GOODBYE_SECONDS, self._idle)

    async def _stop_accepting(self, sockets: list[socket.socket]) -> None:
        """Close the door, behind all who have come to it: closing alone would turn those away who wait there."""
        arrived = [connection for listener in sockets for connection in _arrived(listener)]
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        await asyncio.gather(*map(self._serve_arrived, arrived))

    async def _serve_arrived(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        protocol = partial(  # type: ignore[call-arg]  # as uvicorn makes it; its type says less
            self.config.http_protocol_class,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=loop,
        )
        tls = self.config.ssl
        with suppress(OSError):  # they may have left, or speak no TLS
            await loop.connect_accepted_socket(
                protocol, connection, ssl=tls, ssl_handshake_timeout=None if tls is None else _GOODBYE_SECONDS
            )

    def _idle(self) -> bool:
        return not self.server_state.connections and not self.server_state.tasks

    async def _until(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Wait until something is done, or for some seconds; returns whether it is done."""
        deadline = time.monotonic() + seconds
        ticks = 0
        while not done():
            if time.monotonic() >= deadline:
                return False
            await self.on_tick(ticks * 10)  # answers go on carrying the date of now
            await asyncio.sleep(min(_TICK_SECONDS, seconds))
            ticks += 1
        return True

    def _end(self, status: int) -> None:
        self._last()
        os._exit(status)


def _is_answering(connection: Any) -> bool:  # noqa: ANN401  (any of uvicorn's protocols, or ours)
    """Tell whether a request of a connection has a part of its answer."""
    cycle = getattr(connection, "running", connection.cycle)  # uvicorn's knows only of the last that came
    return cycle is not None and cycle.response_started and not cycle.response_complete


def _arrived(listener: socket.socket) -> Iterator[socket.socket]:
    """Accept everybody who waits."""
    listener.setblocking(False)
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except ConnectionError:  # left while waiting
            continue
        yield connection
