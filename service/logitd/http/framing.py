"""How long a request's body is, by its headers; refused where two readers could disagree."""

from collections.abc import Sequence

from logitd.errors import HeadersTooLarge, Malformed
from logitd.http.limits import Limits

_LINE_BYTES = 4  # colon, space and line end of a header field


def check_size(url: bytes, headers: Sequence[tuple[bytes, bytes]], limits: Limits, add_up: bool = True) -> None:
    """Refuse too many headers, or too many bytes of them.

    Raises:
        HeadersTooLarge.
    """
    if len(headers) > limits.max_headers:
        raise HeadersTooLarge(f"at most {limits.max_headers} header fields")
    if not add_up:
        return
    size = len(url) + sum(len(name) + len(value) + _LINE_BYTES for name, value in headers)
    if size > limits.max_header_bytes:
        raise too_large(limits)


def too_large(limits: Limits) -> HeadersTooLarge:
    """Return the refusal of too many header bytes."""
    return HeadersTooLarge(f"at most {limits.max_header_bytes} bytes of request line and headers")


def declared_length(headers: Sequence[tuple[bytes, bytes]], http_version: str) -> int | None:
    """Return how long the body is; 0 is none, None is chunked.

    Raises:
        Malformed: a transfer encoding that is not one `chunked`, or one in HTTP/1.0, or another version of HTTP.
            httptools has refused duplicate and unreadable lengths, and a length beside a transfer encoding.
    """
    if http_version not in ("1.0", "1.1"):
        raise Malformed(f"HTTP/{http_version} is not spoken here")
    length, codings = 0, []
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            codings.append(value.strip().lower())
    if not codings:
        return length
    if codings != [b"chunked"]:
        raise Malformed.at("transfer-encoding", "only chunked is understood, once")
    if http_version == "1.0":
        raise Malformed.at("transfer-encoding", "HTTP/1.0 has none")
    return None
