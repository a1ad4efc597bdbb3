"""Receiving a body: refused by its declared length before a byte is read, counted while it arrives otherwise."""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable

from fastapi import Request

from logitd.api.headers import header
from logitd.errors import DeadlinePassed, Malformed, PayloadTooLarge, SlowBody
from logitd.http.inflating import inflated, is_compressed
from logitd.http.receiving import RECEIVE_INTO
from logitd.http.staging import StagingPool
from logitd.settings import Settings

_PASSED_SECONDS = 0.1  # may have passed of a request's time before its body is awaited
_LENGTH = re.compile(r"[0-9]{1,19}")


async def read_body(
    request: Request,
    settings: Settings,
    hold: Callable[[int], None] | None = None,
    seconds: float = math.inf,
) -> memoryview:
    """Receive a request's body into one buffer, in place where the HTTP protocol can.

    Args:
        request: its body unread.
        settings: the limits.
        hold: is told how many bytes it takes where that is not what was declared, and raises if they are too many.
        seconds: how long the request has.
    Returns:
        Its bytes, decompressed. The memory is lent: it is another request's once the last view of it is gone.

    Raises:
        PayloadTooLarge: the declared length, a chunked body so far, or what it decompresses to exceeds its limit.
        SlowBody: it did not arrive within `body_timeout_seconds`.
        DeadlinePassed: the request's own time is shorter than that, and over.
        UnsupportedMedia: a content encoding other than gzip and deflate.
        Malformed: an unreadable length, fewer bytes than declared, or broken compression.
        ClientDisconnect: the client left.
        ServiceError: what `hold` raises.
    """
    compressed = is_compressed(header(request, b"content-encoding"))
    length = declared_length(request, settings)
    longest = settings.body_timeout_seconds
    is_short = seconds < longest - _PASSED_SECONDS
    try:
        async with asyncio.timeout(seconds if is_short else longest):
            body = await (_chunked(request, settings) if length is None else _declared(request, length))
    except TimeoutError:
        if is_short:
            raise DeadlinePassed("the request did not arrive within its time") from None
        raise SlowBody.at("body", f"did not arrive within {longest:g} s") from None
    return await inflated(body, settings.max_body_bytes, hold) if compressed else body


def declared_length(request: Request, settings: Settings) -> int | None:
    """Return the length in bytes that a request declares; None for a chunked body.

    Raises:
        PayloadTooLarge: no body may be so long.
        Malformed: it cannot be read.
    """
    declared = header(request, b"content-length")
    if declared is None:
        return None
    declared = declared.strip()
    if not _LENGTH.fullmatch(declared):
        raise Malformed.at("content-length", f"expected a whole number, got {declared[:40]!r}")
    length = int(declared)
    if length > settings.max_body_bytes:
        raise PayloadTooLarge.at("body", f"at most {settings.max_body_bytes} bytes, {length} are declared")
    return length


async def _declared(request: Request, length: int) -> memoryview:
    pool: StagingPool = request.app.state.staging
    body = pool.lease(length).data
    receive_into: Callable[[memoryview], Awaitable[None]] | None
    if receive_into := (request.scope.get("extensions") or {}).get(RECEIVE_INTO):
        await receive_into(body)
        return body
    filled = 0
    async for chunk in request.stream():
        end = filled + len(chunk)
        if end > length:
            raise Malformed.at("body", f"{length} bytes are declared and more arrived")
        body[filled:end] = chunk
        filled = end
    if filled != length:
        raise Malformed.at("body", f"{length} bytes are declared and {filled} arrived")
    return body


async def _chunked(request: Request, settings: Settings) -> memoryview:
    body, limit = bytearray(), settings.max_chunked_body_bytes
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise PayloadTooLarge.at("body", f"at most {limit} bytes without a declared length")
        body += chunk
    return memoryview(body)
