"""What one connection may ask of the protocol before any application code runs."""

from dataclasses import dataclass

from logitd.settings import Settings


@dataclass(frozen=True)
class Limits:
    """The protocol's limits.

    Attributes:
        staged_body_bytes: declared bodies larger than this are received straight into their buffer.
        max_header_bytes: most bytes of request line and headers.
        max_headers: most header fields.
        max_chunks: most chunks of one body.
        header_timeout_seconds: how long a request's headers may take from their first byte.
        write_timeout_seconds: in which a client must take some of what is sent to it.
    """

    staged_body_bytes: int = 131_072
    max_header_bytes: int = 65_536
    max_headers: int = 100
    max_chunks: int = 65_536
    header_timeout_seconds: float = 10.0
    write_timeout_seconds: float = 30.0

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """Return the limits of a service."""
        return cls(
            settings.staged_body_bytes,
            settings.max_header_bytes,
            settings.max_headers,
            settings.max_chunks,
            settings.header_timeout_seconds,
            settings.write_timeout_seconds,
        )
