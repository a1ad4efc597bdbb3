"""How long a request has: the shortest of what its headers and the settings say."""

import re
import time

from fastapi import Request

from logitd.api.headers import header
from logitd.errors import Malformed
from logitd.settings import Settings

_HEADERS = (b"x-request-timeout-ms", b"x-envoy-expected-rq-timeout-ms")
_MILLISECONDS = re.compile(r"[0-9]{1,9}")


def deadline_of(request: Request, settings: Settings) -> float:
    """Return when the time of a request is over, on time.monotonic.

    Raises:
        Malformed: a header that is no whole number of milliseconds.
    """
    seconds = settings.request_timeout_seconds
    for name in _HEADERS:
        sent = header(request, name)
        if sent is not None:
            sent = sent.rstrip(" \t")
            if not _MILLISECONDS.fullmatch(sent):
                raise Malformed.at(name.decode(), f"expected a whole number of milliseconds, got {sent[:40]!r}")
            seconds = min(seconds, int(sent) / 1000)
    return time.monotonic() + seconds
