"""A progress bar: one line on standard error that is drawn anew, and only where that is a terminal."""

import shutil
import sys
from types import TracebackType
from typing import Any, Self

_CELLS = 24
_CLEAR = "\r\x1b[K"


class Bar:
    """Shows how many trials are done and which was the last. A context manager: the line is gone at the end."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._draw(f"[{' ' * _CELLS}] waiting for the first trial")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw("")

    def tell(self, progress: dict[str, Any]) -> None:
        """Show one event of `Client.attention_compare`."""
        done, total = progress["done"], progress["total"]
        cells = "#" * (_CELLS * done // total)
        features = progress["feature_dim"] or ""
        self._draw(f"[{cells:{_CELLS}}] {done}/{total} {progress['method']} {features}".rstrip())

    def _draw(self, text: str) -> None:
        if self._shown:
            width = shutil.get_terminal_size().columns - 1
            print(_CLEAR + text[:width], end="", file=sys.stderr, flush=True)
