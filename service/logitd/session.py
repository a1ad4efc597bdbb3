"""One streaming session: a stream, and the steps that it was built by."""

import threading
from dataclasses import dataclass, field

from logitd.errors import Conflict
from logitd_kernels.attention.streams import Stream


@dataclass
class Session:
    """One sequence.

    Attributes:
        id: unguessable.
        stream: what it keeps.
        step: how many times tokens were appended.
        reply: the answer to the last step, for a caller that did not get it; None where it was too large to keep.
        body: a digest of that step's request.
        expires: on the monotonic clock, seconds.
        tolerance: relative error that a head may have.
        reserved: what it may keep, bytes: at least `held_bytes`.
        users: how many requests are at it; it is not dropped under them.
        lock: held while the stream is read or written.
    """

    id: str
    stream: Stream
    expires: float
    tolerance: float
    step: int = 0
    reply: bytes | None = None
    body: bytes = b""
    reserved: int = 0
    users: int = 0
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
            Conflict: another step is next, the last one was another request, or its reply is not kept.
        """
        if step is None or step == self.step:
            return None
        if step != self.step - 1 or not self.body:
            raise Conflict.at("step", f"the next step is {self.step}, got {step}")
        if body != self.body:
            raise Conflict.at("step", f"step {step} was another request; the next step is {self.step}")
        if self.reply is None:
            raise Conflict.at("step", f"step {step} was done; its answer was too large to be kept: ask by query")
        return self.reply

    def end(self, reply: bytes | None, body: bytes) -> None:
        """Count a step that was done; None for a reply that is too large to keep."""
        self.step += 1
        self.reply, self.body = reply, body
