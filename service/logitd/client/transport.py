"""What both clients share around httpx: its options, its faults as ours, and the reading of a response."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from logitd.client.answer import error_of
from logitd.client.request import Call
from logitd.errors import ConnectionFailed, TimedOut, UnexpectedAnswer
from logitd.version import __version__

Answer = TypeVar("Answer")
PathLike = str | os.PathLike[str]

_UNIX = "unix:"
_ANY_HOST = "http://localhost"  # what requests through a Unix domain socket name; nobody looks it up


@dataclass(frozen=True)
class Service:
    """Where a service listens and how to ask it.

    Attributes:
        url: `http://HOST`, `https://HOST`, or `unix:///PATH`.
        uds: the path of a Unix domain socket, instead of a URL's host.
        api_key: sent with every request; None takes that of the environment, if any.
        headers: sent with every request; they win.
        timeout_seconds: for a connection, and for each part of an answer.
    """

    url: str
    timeout_seconds: float
    headers: Mapping[str, str] | None = None
    uds: PathLike | None = None
    api_key: str | None = field(default=None, repr=False)

    @property
    def socket(self) -> str | None:
        """The path of the Unix domain socket, if it is one.

        Raises:
            ValueError: the URL names one without an absolute path.
        """
        if self.uds is not None:
            return os.fspath(self.uds)
        if not self.url.startswith(_UNIX):
            return None
        path = self.url.removeprefix(_UNIX).removeprefix("//")
        if not path.startswith("/"):
            raise ValueError(f"url must be unix:///PATH with an absolute path, got {self.url!r}")
        return path

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of either httpx client.

        Raises:
            ValueError: the URL, the timeout or the key cannot be used.
        """
        if not self.timeout_seconds > 0:
            raise ValueError(f"timeout_seconds must be above 0, got {self.timeout_seconds}")
        return {
            "base_url": _base_url(self.url if self.socket is None else _ANY_HOST),
            "timeout": httpx.Timeout(self.timeout_seconds),
            "headers": httpx.Headers(
                {"user-agent": f"logitd/{__version__}", **_authorization(self.api_key), **_lower(self.headers)}
            ),
        }


def _base_url(url: str) -> httpx.URL:
    try:
        base_url = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"url {url!r}: {error}") from error
    if base_url.scheme not in ("http", "https") or not base_url.host:
        raise ValueError(f"url must be http://HOST or https://HOST, or unix:///PATH, got {url!r}")
    return base_url


def _authorization(key: str | None) -> dict[str, str]:
    key = os.environ.get("LOGITD_API_KEY") if key is None else key
    if not key:
        return {}
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("the API key must be printable ASCII without spaces")
    return {"authorization": f"Bearer {key}"}


def _lower(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}


@contextmanager
def translated() -> Iterator[None]:
    """Raise what httpx raises as the errors of this package, the cause kept."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise TimedOut(str(error) or "no answer in time") from error
    except httpx.TransportError as error:
        raise ConnectionFailed(str(error) or type(error).__name__) from error
    except httpx.RequestError as error:  # an answer whose content encoding is broken
        raise UnexpectedAnswer(str(error)) from error


def finish(call: Call[Answer], response: httpx.Response) -> Answer:
    """Read the answer to a call.

    Raises:
        ApiError: the service refused or failed.
        UnexpectedAnswer: the answer cannot be read.
    """
    if not response.is_success:
        raise error_of(response.status_code, response.headers, response.content)
    return call.read(response.content)
