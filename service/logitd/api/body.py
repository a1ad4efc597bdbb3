"""Receiving a body: refused by its declared length before a byte is read, counted while it arrives otherwise."""

import asyncio
import re

from fastapi import Request

from logitd.errors import Malformed, PayloadTooLarge, SlowBody, UnsupportedMedia
from logitd.settings import Settings

_LENGTH = re.compile(r"[0-9]{1,19}")


async def read_body(request: Request, settings: Settings) -> bytearray:
    """Receive a request's body into one buffer.

    Raises:
        PayloadTooLarge: the declared length, or a chunked body so far, exceeds its limit.
        SlowBody: it did not arrive within `body_timeout_seconds`.
        UnsupportedMedia: it is compressed.
        Malformed: an unreadable length, or fewer bytes than declared.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMedia.at("content-encoding", f"only identity is understood, got {encoding[:40]!r}")
    declared = request.headers.get("content-length")
    limit = settings.max_chunked_body_bytes
    if declared is not None:
        if not _LENGTH.fullmatch(declared):
            raise Malformed.at("content-length", f"expected a whole number, got {declared[:40]!r}")
        limit = int(declared)
        if limit > settings.max_body_bytes:
            raise PayloadTooLarge.at("body", f"at most {settings.max_body_bytes} bytes, {limit} are declared")
    try:
        async with asyncio.timeout(settings.body_timeout_seconds):
            return await _receive(request, limit, declared is not None)
    except TimeoutError:
        raise SlowBody.at("body", f"did not arrive within {settings.body_timeout_seconds:g} s") from None


async def _receive(request: Request, limit: int, declared: bool) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise PayloadTooLarge.at("body", f"at most {limit} bytes without a declared length")
    if declared and len(body) != limit:
        raise Malformed.at("body", f"{limit} bytes are declared and {len(body)} arrived")
    return body
