"""Answers that nobody reads: how long a connection may stay full before it is given up."""

import asyncio
import contextlib
import struct
import sys
from collections.abc import Callable

if sys.platform != "win32":  # where this protocol does not run
    import fcntl
    import termios

# In the time that a client has: who is given up has taken nothing for that time, or up to a quarter more.
_LOOKS = 4


class Unread:
    """Watches what waits to be sent. While it waits, the client has to take some of it now and then.

    What the kernel holds counts too: it takes from the transport in large pieces, which a slow reader needs long for.
    And a TLS transport does not tell all that waits in it; that the kernel's part does not go away tells that it does.

    Args:
        transport: of the connection.
        loop: of the transport.
        seconds: in which a client must take a byte.
        give_up: called once it has not.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        give_up: Callable[[], None],
    ) -> None:
        self._transport, self._loop, self._give_up = transport, loop, give_up
        self._interval_seconds = seconds / _LOOKS
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._timer: asyncio.TimerHandle | None = None
        self._last: tuple[int, int] | None = None
        self._same = 0
        self._over = False

    def watch(self) -> None:
        """Begin to watch, for something is being written; ends by itself when all has been sent."""
        if self._timer is None and not self._over:
            self._last = None
            self._again()

    def stop(self) -> None:
        """End for good: the connection is gone."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self._timer = self._loop.call_later(self._interval_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        in_transport = self._transport.get_write_buffer_size()
        if not (in_transport or self._is_tls):
            return
        in_kernel = _in_kernel(self._transport)
        if not (in_transport or in_kernel):
            return
        waiting = in_transport, in_kernel
        self._same = self._same + 1 if waiting == self._last else 0
        self._last = waiting
        if self._same == _LOOKS:
            self._give_up()
        else:
            self._again()


def _in_kernel(transport: asyncio.Transport) -> int:
    """Return how many bytes the kernel has that the client's has not acknowledged."""
    if sys.platform == "win32":
        return 0
    size = bytearray(4)
    with contextlib.suppress(OSError):  # some kernels do not tell
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, size)
    return int(struct.unpack("i", size)[0])
