"""Triton's Python backend embeds a Python of its own, and loads the standard library of the one that it finds.

In 3.11.7 `multiprocessing.resource_tracker` asks its lock how deep it is held, which the embedded interpreter's locks
cannot tell. The answer only guards against a call from a finalizer: here it is always "not at all".
"""

from multiprocessing import resource_tracker
from typing import Any


class _Lock:
    """A lock that can be asked."""

    def __init__(self, lock: Any) -> None:  # noqa: ANN401  (an RLock of C)
        self._lock = lock

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *fault: object) -> None:
        self._lock.__exit__(*fault)

    def _recursion_count(self) -> int:
        return 0


_tracker = resource_tracker._resource_tracker
if not hasattr(_tracker._lock, "_recursion_count"):
    _tracker._lock = _Lock(_tracker._lock)
