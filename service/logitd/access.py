"""Who may ask: API keys, checked by the headers alone, before a byte of the body is read."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from logitd.api.problems import problem
from logitd.errors import CannotServe, Unauthorized
from logitd.settings import Settings

CALLER = "caller"  # in the scope's state: the name of the key that a request came with

_OPEN = frozenset({"/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"})  # whoever probes has no key
_UNNAMED = "key-{}"
_CHALLENGE = 'Bearer realm="logitd"'


class Keys:
    """Known keys, as digests. Their names may be logged; the keys are kept nowhere.

    Args:
        keys: name and key of each.
    """

    def __init__(self, keys: Iterable[tuple[str, str]]) -> None:
        self._digests = [(name, _digest(key.encode())) for name, key in keys]

    def name_of(self, presented: bytes) -> str | None:
        """Return the name of a key, None if it is unknown; takes the same time for every key."""
        digest = _digest(presented)
        found = None
        for name, known in self._digests:
            if hmac.compare_digest(digest, known):
                found = name
        return found


class Access:
    """Refuses, with 401, requests that bring no known key as `Authorization: Bearer …` or `X-API-Key: …`."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, under the name of its key."""
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        presented = list(_presented(scope))
        names = [name for key in presented if (name := self._keys.name_of(key)) is not None]
        if names:
            scope.setdefault("state", {})[CALLER] = names[0]
            await self._app(scope, receive, send)
            return
        answer = problem(Unauthorized("the API key is unknown" if presented else "an API key is required"))
        answer.headers["www-authenticate"] = _CHALLENGE + (', error="invalid_token"' if presented else "")
        await answer(scope, receive, send)


def keys_of(settings: Settings) -> Keys | None:
    """Return the keys that the settings name, None if they name no source of keys.

    Raises:
        CannotServe: the file cannot be read, a key has no readable form, or a source holds none: a service that was
            to be closed is never open by mistake.
    """
    found: list[tuple[str, str]] = []
    if settings.api_keys is not None:
        found += _named("LOGITD_API_KEYS / --api-keys", settings.api_keys.get_secret_value().split(","), len(found))
    if settings.api_keys_file is not None:
        found += _named(str(settings.api_keys_file), _lines(settings.api_keys_file), len(found))
    return Keys(found) if found else None


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise CannotServe(f"LOGITD_API_KEYS_FILE / --api-keys-file: cannot read {path}: {why}") from None
    return (line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _named(source: str, entries: Iterable[str], before: int) -> list[tuple[str, str]]:
    """Return name and key of each entry, `name:key` or `key`, leaving out what is empty."""
    keys: list[tuple[str, str]] = []
    for entry in (entry.strip() for entry in entries):
        if not entry:
            continue
        name, colon, key = entry.rpartition(":")
        name, key = name.strip() or _UNNAMED.format(before + len(keys) + 1), key.strip()
        if (
            ":" in name
            or not key
            or not key.isascii()
            or not key.isprintable()
            or " " in key
            or (colon and not name.isprintable())
        ):
            raise CannotServe(
                f"{source}: key {len(keys) + 1} must be printable ASCII without spaces and colons, or name:key"
            )
        keys.append((name, key))
    if not keys:
        raise CannotServe(f"{source}: holds no key")
    return keys


def _presented(scope: Scope) -> Iterator[bytes]:
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
