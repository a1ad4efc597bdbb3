"""Answers that come as server-sent events: bytes in as they arrive; progress, a result or a typed error out."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from logitd.client.answer import error_of
from logitd.client.reading import reading
from logitd.errors import UnexpectedAnswer

Progress = Callable[[dict[str, Any]], None]
Event = tuple[str, bytes]

_IGNORED = (b"id", b"retry")
_SHOWN_BYTES = 40


class EventReader:
    """Splits a stream into events, each with its name and data.

    Lines end in LF or CRLF and are split as bytes: JSON may hold what `str.splitlines` takes for the end of a line.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Take what has arrived, cut anywhere, and return the events that it completes.

        Raises:
            UnexpectedAnswer: a line that is not of an event stream.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line in (b"", b"\r"):
                yield from self._completed()
            else:
                self._add(line.removesuffix(b"\r"))

    def _add(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        elif field and field not in _IGNORED:  # none is a comment
            start = line[:_SHOWN_BYTES].decode("utf-8", "replace")
            raise UnexpectedAnswer(f"expected server-sent events, got a line {start!r}")

    def _completed(self) -> Iterator[Event]:
        if self._data:
            yield self._name, b"\n".join(self._data)
        self._name, self._data = "message", []


class Listener:
    """Follows one try of a call: tells its progress, keeps its result. Events of other names are passed over."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._reader = EventReader()
        self._result: bytes | None = None

    def feed(self, chunk: bytes) -> None:
        """Take what has arrived.

        Raises:
            ApiError: the event `error`, as the same problem with its status would have been.
            UnexpectedAnswer: what arrived cannot be read.
        """
        for name, data in self._reader.feed(chunk):
            if name == "progress" and self._progress is not None:
                self._progress(_object(data))
            elif name == "result":
                self._result = data
            elif name == "error":
                raise error_of(_status(data), {}, data)

    def result(self) -> bytes:
        """Return the data of the event `result`, when all has arrived.

        Raises:
            UnexpectedAnswer: there was none.
        """
        if self._result is None:
            raise UnexpectedAnswer("the events ended without a result")
        return self._result


def _object(data: bytes) -> dict[str, Any]:
    with reading("progress"):
        return dict(json.loads(data))


def _status(problem: bytes) -> int:
    with reading("error"):
        status = json.loads(problem)["status"]
        if not isinstance(status, int) or not 400 <= status < 600:
            raise ValueError(f"{status!r} is no status of an error")
        return status
