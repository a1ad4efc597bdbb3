"""What both clients share around httpx: its options, its faults as ours, and the reading of a response."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from logitd.client.answer import error_of
from logitd.client.request import Call
from logitd.errors import ConnectionFailed, TimedOut, UnexpectedAnswer
from logitd.version import __version__

Answer = TypeVar("Answer")


def http_options(url: str, timeout_seconds: float, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the keyword arguments of either httpx client.

    Raises:
        ValueError: the URL or the timeout cannot be used.
    """
    try:
        base_url = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"url {url!r}: {error}") from error
    if base_url.scheme not in ("http", "https") or not base_url.host:
        raise ValueError(f"url must be http://HOST or https://HOST, got {url!r}")
    if not timeout_seconds > 0:
        raise ValueError(f"timeout_seconds must be above 0, got {timeout_seconds}")
    return {
        "base_url": base_url,
        "timeout": httpx.Timeout(timeout_seconds),
        "headers": {"user-agent": f"logitd/{__version__}", **(headers or {})},
    }


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
