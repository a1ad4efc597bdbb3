"""Whether and how an answer is compressed."""

import gzip
import re
import zlib

SMALLEST_BYTES = 1024  # less is sent as it is

_LEVEL = 1  # numbers hardly shrink
_WEIGHT = re.compile(r"q\s*=\s*([01](?:\.[0-9]{0,3})?)")


def chosen(accept_encoding: str) -> str | None:
    """Return the compression that an Accept-Encoding header likes best: gzip, deflate, or None for none."""
    if not accept_encoding:
        return None
    weights = {"identity": 0.0}
    for offer in accept_encoding.lower().split(","):
        name, *parameters = (part.strip() for part in offer.split(";"))
        found = [_WEIGHT.fullmatch(parameter) for parameter in parameters]
        weights[name] = float(found[0][1]) if found and found[0] else 1.0
    best = max(("gzip", "deflate"), key=lambda name: weights.get(name, 0.0))
    return best if weights.get(best, 0.0) > weights["identity"] else None


def compressed(body: bytes, encoding: str) -> bytes:
    """Compress a body; `deflate` has the zlib wrapper, as HTTP means it."""
    return gzip.compress(body, _LEVEL, mtime=0) if encoding == "gzip" else zlib.compress(body, _LEVEL)
