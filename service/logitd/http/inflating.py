"""Compressed bodies: gzip and deflate, in bounded steps, up to a limit that counts what comes out."""

import asyncio
import zlib
from collections.abc import Callable

from logitd.errors import Malformed, PayloadTooLarge, UnsupportedMedia

_GZIP_OR_ZLIB = 47  # zlib's window bits for either wrapper
_CODINGS = ("gzip", "x-gzip", "deflate")
_IDENTITY = "identity"
_IN_BYTES = 1 << 16
_OUT_BYTES = 1 << 20
_INLINE_BYTES = 1 << 16  # more than this, of input or of output, is not the event loop's work


def is_compressed(encoding: str | None) -> bool:
    """Tell from a Content-Encoding header whether a body is to be inflated.

    Raises:
        UnsupportedMedia: a coding that is not understood, or more than one.
    """
    coding = (encoding or _IDENTITY).strip().lower()
    if coding not in (_IDENTITY, *_CODINGS):
        raise UnsupportedMedia.at("content-encoding", f"expected gzip, deflate or identity, got {coding[:40]!r}")
    return coding != _IDENTITY


async def inflated(body: memoryview, limit_bytes: int, hold: Callable[[int], None] | None = None) -> memoryview:
    """Return what a gzip or zlib stream holds; large ones are inflated on a thread.

    Args:
        body: the stream.
        limit_bytes: most that may come out.
        hold: is told before there are more how many bytes there will be, the stream's own included, and at the end how
            many have come out; what it raises ends it.
    Raises:
        Malformed: not such a stream, cut short, or with something behind it.
        PayloadTooLarge: it holds more than `limit_bytes`; no more than that is ever kept.
    """
    stream = _Stream(body, limit_bytes)
    done = len(body) <= _INLINE_BYTES and stream.inflate(_INLINE_BYTES)
    while not done:
        until = min(len(stream.out) + _OUT_BYTES, limit_bytes)
        if hold is not None:
            hold(len(body) + until)
        done = await asyncio.to_thread(stream.inflate, until)
    if hold is not None:
        hold(len(stream.out))
    return memoryview(stream.out)


class _Stream:
    """One stream, inflated as far as somebody asks."""

    def __init__(self, body: memoryview, limit_bytes: int) -> None:
        self.out = bytearray()
        self._body, self._limit_bytes = body, limit_bytes
        self._place = 0
        self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)

    def inflate(self, until_bytes: int) -> bool:
        """Go on until the end (True), or until `until_bytes` have come out in all (False)."""
        try:
            while not self._zlib.eof:
                if len(self.out) >= until_bytes and until_bytes < self._limit_bytes:
                    return False
                self._step(min(_OUT_BYTES, max(until_bytes - len(self.out), 0) + 1))
        except zlib.error:
            raise Malformed.at("body", "is not gzip or deflate data") from None
        if self._zlib.unused_data or self._place < len(self._body):
            raise Malformed.at("body", "something follows the compressed data")
        return True

    def _step(self, most: int) -> None:
        # What one step leaves of its input is copied, so it gets little of it at a time.
        data = self._zlib.unconsumed_tail or self._body[self._place : self._place + _IN_BYTES]
        if not self._zlib.unconsumed_tail:
            self._place += len(data)
        before = len(self.out)
        self.out += self._zlib.decompress(data, most)
        if len(self.out) > self._limit_bytes:
            raise PayloadTooLarge.at("body", f"at most {self._limit_bytes} bytes once decompressed")
        if not data and len(self.out) == before and not self._zlib.eof:
            raise Malformed.at("body", "the compressed data is cut short")
