"""Sockets to listen on: TCP, or a Unix domain socket that takes the place of one nobody listens on."""

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from logitd.errors import CannotServe

BACKLOG = 2048
_ANSWER_SECONDS = 1.0


@dataclass
class Listener:
    """A socket that listens, and its file if it is a Unix domain socket.

    Attributes:
        socket: accepts from now on.
        address: as the middle of a URL: `127.0.0.1:8000`, `[::1]:8000` or a path.
        path, identity: of its file, with device and inode, so that nobody else's is removed.
    """

    socket: socket.socket
    address: str
    path: Path | None = None
    identity: tuple[int, int] = (0, 0)

    def url(self, tls: bool) -> str:
        """Return where to reach it."""
        return f"unix://{self.address}" if self.path else f"{'https' if tls else 'http'}://{self.address}"

    def close(self) -> None:
        """Close the socket and remove its file."""
        self.socket.close()
        if self.path is not None:
            with suppress(OSError):
                if _identity(self.path) == self.identity:
                    self.path.unlink()


def listen(host: str, port: int) -> Listener:
    """Listen on TCP; port 0 takes a free one.

    Raises:
        CannotServe.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: a host that is no name at all
        raise CannotServe(f"cannot listen on {_joined(host, port)}: {_why(error)}", status=1) from None
    return Listener(listener, _joined(*listener.getsockname()[:2]))


def listen_unix(path: Path, mode: int) -> Listener:
    """Listen on a Unix domain socket. A socket file that nobody listens on, left by a crash, is replaced.

    Args:
        path: the file.
        mode: its permissions, from the first moment.
    Raises:
        CannotServe: somebody listens there, something else is there, or it cannot be made.
    """
    path = path.absolute()
    try:
        _clear(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o777 & ~mode)
        try:
            listener.bind(str(path))
            path.chmod(mode)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(mask)
    except OSError as error:
        raise CannotServe(f"cannot listen on {path}: {_why(error)}", status=1) from None
    return Listener(listener, str(path), path, _identity(path))


def _clear(path: Path) -> None:
    """Remove a socket file that nobody listens on.

    Raises:
        OSError: somebody does, or it is no socket.
    """
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(_ANSWER_SECONDS)
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except (BlockingIOError, TimeoutError):  # somebody listens, and has no time
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
