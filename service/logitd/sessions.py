"""Streaming sessions: one stream each, steps counted, dropped when idle or when there is no room."""

import hmac
import secrets
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field

from logitd.errors import Conflict, Gone, NotFound, Unavailable
from logitd.settings import Settings
from logitd_kernels.attention.streams import Stream

_ID_BYTES, _MAC_BYTES = 18, 9


@dataclass
class Session:
    """One sequence.

    Attributes:
        id: unguessable.
        stream: what it keeps.
        step: how many times tokens were appended.
        reply: the answer to the last step, for a caller that did not get it.
        body: a digest of that step's request.
        expires: on the monotonic clock, seconds.
        tolerance: relative error that a head may have.
        lock: held while the stream is read or written.
    """

    id: str
    stream: Stream
    expires: float
    tolerance: float
    step: int = 0
    reply: bytes | None = None
    body: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def held_bytes(self) -> int:
        """What it keeps, the last reply included."""
        return self.stream.bytes + len(self.reply or b"")

    def begin(self, step: int | None, body: bytes) -> bytes | None:
        """Return the reply that a repeated step was answered with, None for a step that is to be done.

        Args:
            step: which step it is; None for the next.
            body: a digest of the request and of the form of its answer.
        Raises:
            Conflict: another step is next, or the last one was another request.
        """
        if step is None or step == self.step:
            return None
        if step != self.step - 1 or self.reply is None:
            raise Conflict.at("step", f"the next step is {self.step}, got {step}")
        if body != self.body:
            raise Conflict.at("step", f"step {step} was another request; the next step is {self.step}")
        return self.reply

    def end(self, reply: bytes, body: bytes) -> None:
        """Count a step that was done."""
        self.step += 1
        self.reply, self.body = reply, body


class Sessions:
    """All sessions of a process.

    An id carries a mark that only this process can make, so one that it once gave out is told from one that it never
    did, without remembering any.

    Args:
        settings: how long, how many, how large.
        clock: monotonic, seconds.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._all: dict[str, Session] = {}
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

    def create(self, stream: Stream, tolerance: float) -> Session:
        """Take in a stream.

        Raises:
            Unavailable: there are as many sessions, or as many bytes, as may be.
        """
        with self._lock:
            self._drop_expired()
            if len(self._all) >= self._settings.max_sessions:
                raise Unavailable(f"{len(self._all)} sessions are open; delete one, or wait for one to expire")
            self._check_room(stream.bytes)
            name = secrets.token_bytes(_ID_BYTES)
            text = urlsafe_b64encode(name + self._mark(name)).decode()
            session = Session(text, stream, self._clock() + self._settings.session_ttl_seconds, tolerance)
            self._all[session.id] = session
            return session

    def get(self, name: str) -> Session:
        """Return a session, which lives on from now.

        Raises:
            Gone: it has expired or was deleted.
            NotFound: this process never gave out such an id.
        """
        with self._lock:
            self._drop_expired()
            session = self._all.get(name)
            if session is None:
                raise self._missing(name)
            session.expires = self._clock() + self._settings.session_ttl_seconds
            return session

    def delete(self, name: str) -> None:
        """End a session.

        Raises:
            Gone, NotFound: as `get`.
        """
        with self._lock:
            self._drop_expired()
            if self._all.pop(name, None) is None:
                raise self._missing(name)

    def check_growth(self, session: Session, more_bytes: int) -> None:
        """Refuse what would make a session, or all of them, too large.

        Raises:
            Conflict: the session's limit.
            Unavailable: the limit of all.
        """
        limit = self._settings.max_session_bytes
        if session.held_bytes + more_bytes > limit:
            raise Conflict(
                f"a session keeps at most {limit} bytes, this one would keep {session.held_bytes + more_bytes}"
            )
        with self._lock:
            self._check_room(more_bytes)

    def _check_room(self, more_bytes: int) -> None:
        held = sum(session.held_bytes for session in self._all.values())
        if held + more_bytes > self._settings.max_sessions_bytes:
            raise Unavailable(f"all sessions keep {held} of {self._settings.max_sessions_bytes} bytes; try again later")

    def _drop_expired(self) -> None:
        now = self._clock()
        for name in [name for name, session in self._all.items() if session.expires <= now]:
            del self._all[name]

    def _missing(self, name: str) -> Gone | NotFound:
        try:
            raw = urlsafe_b64decode(name)
        except ValueError:
            raw = b""
        if hmac.compare_digest(self._mark(raw[:_ID_BYTES]), raw[_ID_BYTES:]):
            return Gone("the session has expired or was deleted")
        return NotFound("there is no such session")

    def _mark(self, name: bytes) -> bytes:
        return hmac.digest(self._key, name, "sha256")[:_MAC_BYTES]
