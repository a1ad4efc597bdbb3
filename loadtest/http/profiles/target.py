"""Where a server listens, by its URL."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from loadtest.http.client import Address


@dataclass(frozen=True)
class Target:
    """Where a server listens.

    Attributes:
        address: host and port, or the path of a Unix socket.
        tls: whether it speaks HTTPS.
    """

    address: Address
    tls: bool = False

    @classmethod
    def of(cls, url: str) -> "Target":
        """Read http://HOST:PORT, https://HOST:PORT or unix:///PATH.

        Raises:
            ValueError: another scheme, or no host.
        """
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path:
            return cls(parts.path)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected http://HOST:PORT, https://HOST:PORT or unix:///PATH, got {url!r}")
        tls = parts.scheme == "https"
        return cls((parts.hostname, parts.port or (443 if tls else 80)), tls)
