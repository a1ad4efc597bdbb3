"""The trace that a caller says a request belongs to (W3C Trace Context)."""

import re
from collections.abc import Iterable
from typing import NamedTuple

_HEADER = b"traceparent"
# A later version may have more behind a dash; ff is none.
_FORM = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?")


class Trace(NamedTuple):
    """A trace, and whether somebody keeps it."""

    trace_id: str
    is_sampled: bool


def trace_of(headers: Iterable[tuple[bytes, bytes]]) -> Trace | None:
    """Return the trace that request headers name; None without one, or with one that is not well-formed."""
    for name, value in headers:
        if name == _HEADER:
            return _parsed(value)
    return None


def _parsed(value: bytes) -> Trace | None:
    found = _FORM.fullmatch(value.strip())
    if found is None or (found[1] == b"00" and found[4] is not None):
        return None
    return Trace(found[2].decode(), bool(int(found[3], 16) & 1))
