"""All streaming sessions of a process: bounded in number and bytes, dropped when idle."""

import hmac
import secrets
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logitd.errors import Conflict, Gone, Invalid, NotFound, Unavailable
from logitd.session import Session
from logitd.settings import Settings
from logitd_kernels.attention.streams import Stream

REPLY_BYTES = 1024  # of a reply without its output, at most

_ID_BYTES, _MAC_BYTES = 18, 9


class Sessions:
    """All sessions of a process.

    An id carries a mark that only this process can make, or those that share `session_id_key` with it, so one that was
    once given out is told from one that never was, without remembering any.

    Args:
        settings: how long, how many, how large.
        clock: monotonic, seconds.

    Attributes:
        on_event: is told what becomes of sessions, one of `metrics` SESSION_EVENTS; must not wait.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self.on_event: Callable[[str], None] = lambda event: None
        shared = settings.session_id_key
        self._key = secrets.token_bytes(32) if shared is None else shared.get_secret_value().encode()
        self._all: dict[str, Session] = {}
        self._opening: list[int] = []  # bytes of streams that are being built
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._all)

    @property
    def held_bytes(self) -> int:
        """What all streams keep."""
        with self._lock:
            return sum(session.held_bytes for session in self._all.values())

    def create(
        self, needed: int, build: Callable[[], Stream], tolerance: float, step: int = 0, event: str = "create"
    ) -> Session:
        """Build a stream and take it in. Its room is set aside first, so that no two take the same.

        Args:
            needed: bytes that the stream will keep.
            build: makes it.
            tolerance: relative error that a head may have.
            step: how many steps it has behind it.
            event: as it is counted; `import` for a stream that comes from elsewhere.
        Raises:
            Invalid: no session may be so large.
            Unavailable: there are as many sessions, or as many bytes, as may be.
        """
        needed += REPLY_BYTES
        limit = min(self._settings.max_session_bytes, self._settings.max_sessions_bytes)
        if needed > limit:
            raise Invalid.at("heads", f"a session keeps at most {limit} bytes, this one would keep {needed}")
        with self._lock:
            self._drop_expired()
            count = len(self._all) + len(self._opening)
            if count >= self._settings.max_sessions:
                raise Unavailable(f"{count} sessions are open; delete one, or wait for one to expire")
            self._check_room(needed)
            self._opening.append(needed)
        session = None
        try:
            session = Session(self._new_id(), build(), self._expiry(), tolerance, step, reserved=needed)
        finally:
            with self._lock:
                self._opening.remove(needed)
                if session is not None:
                    self._all[session.id] = session
        self.on_event(event)
        return session

    def get(self, name: str) -> Session:
        """Return a session, which lives on from now.

        Raises:
            Gone: it has expired or was deleted.
            NotFound: such an id was never given out.
        """
        with self.using(name) as session:
            return session

    @contextmanager
    def using(self, name: str) -> Iterator[Session]:
        """Keep a session from expiring; it lives on from the end of the use.

        Raises:
            Gone, NotFound: as `get`.
        """
        with self._lock:
            self._drop_expired()
            session = self._all.get(name)
            if session is None:
                raise self._missing(name)
            session.users += 1
        self.on_event("hit")
        try:
            yield session
        finally:
            with self._lock:
                session.users -= 1
                session.expires = self._expiry()

    def delete(self, name: str) -> None:
        """End a session.

        Raises:
            Gone, NotFound: as `get`.
        """
        with self._lock:
            self._drop_expired()
            if self._all.pop(name, None) is None:
                raise self._missing(name)
        self.on_event("delete")

    @contextmanager
    def growing(self, session: Session, more_bytes: int, reply_bytes: int) -> Iterator[None]:
        """Set room aside for a step, and afterwards keep only what it took. The session's lock must be held.

        Args:
            session: the session.
            more_bytes: what its stream may grow by.
            reply_bytes: what it may keep of the reply, in place of the last one.
        Raises:
            Conflict: the session's limit.
            Unavailable: the limit of all.
        """
        limit, wanted = self._settings.max_session_bytes, session.stream.bytes + more_bytes + reply_bytes
        if wanted > limit:
            raise Conflict(f"a session keeps at most {limit} bytes, the last reply included; this would be {wanted}")
        with self._lock:
            self._check_room(wanted - session.reserved)
            session.reserved = max(session.reserved, wanted)
        try:
            yield
        finally:
            with self._lock:
                session.reserved = max(session.held_bytes, session.stream.bytes + REPLY_BYTES)

    def _check_room(self, more_bytes: int) -> None:
        held = sum(session.reserved for session in self._all.values()) + sum(self._opening)
        if more_bytes > 0 and held + more_bytes > self._settings.max_sessions_bytes:
            raise Unavailable(f"all sessions keep {held} of {self._settings.max_sessions_bytes} bytes; try again later")

    def _drop_expired(self) -> None:
        now = self._clock()
        for name, session in list(self._all.items()):
            if session.expires <= now and not session.users and not session.lock.locked():
                del self._all[name]
                self.on_event("expire")

    def _expiry(self) -> float:
        return self._clock() + self._settings.session_ttl_seconds

    def _new_id(self) -> str:
        name = secrets.token_bytes(_ID_BYTES)
        return urlsafe_b64encode(name + self._mark(name)).decode()

    def _missing(self, name: str) -> Gone | NotFound:
        self.on_event("miss")
        try:
            raw = urlsafe_b64decode(name)
        except ValueError:
            raw = b""
        if hmac.compare_digest(self._mark(raw[:_ID_BYTES]), raw[_ID_BYTES:]):
            return Gone("the session has expired or was deleted")
        return NotFound("there is no such session")

    def _mark(self, name: bytes) -> bytes:
        return hmac.digest(self._key, name, "sha256")[:_MAC_BYTES]
