"""Structured logs: one JSON object a line on standard error. Tensors are never logged."""

import json
import logging
import sys
import time

import orjson

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields of `extra`."""

    def __init__(self) -> None:
        super().__init__()
        self._second, self._shown = 0, ""  # most lines are of the same second as the last

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line = {
            "time": f"{self._time(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode()
        except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
            return json.dumps(line, default=str)

    def _time(self, second: int) -> str:
        if second != self._second:  # a handler formats under its lock
            self._second, self._shown = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return self._shown


def configure(level: str) -> None:
    """Send every log line of the process to standard error as JSON."""
    # Nothing that a line would show; finding it out for each record costs more than writing it.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True  # our own line says more
