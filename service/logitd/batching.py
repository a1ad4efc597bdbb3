"""What is computed next: a queue of work, handed out in batches. Pure: no clock, no threads, no tensors.

- Nothing waits while a device is free: `take` hands out whatever is there.
- A batch holds work of one key, up to a budget of rows and bytes; one row is always within it.
- Work that passes the budget is handed out in parts. After each part it goes to the end of the queue, so that nobody
  waits for more than one part of each that was there before.
- Cancelled and expired work is never handed out, nor is what is left of it.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_LOOK_AHEAD = 64  # how many others are looked at for work of the same key


@dataclass(eq=False, slots=True)
class Item(Generic[T]):
    """Some rows of work.

    Attributes:
        work: whatever is to be done.
        key: items of one key share batches; None shares with nobody.
        rows: how many there are, at least 1.
        row_bytes: of each.
        enqueued: when it came, seconds.
        deadline: when its time is over, seconds on the same clock; None for never.
        handed: rows that were handed out.
    """

    work: T
    key: Hashable
    rows: int
    row_bytes: int
    enqueued: float
    deadline: float | None = None
    handed: int = 0

    @property
    def left(self) -> int:
        """Rows that were not handed out yet."""
        return self.rows - self.handed


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """Rows [start, stop) of an item."""

    item: Item[T]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Parts of items of one key, and the items that turned out to be too late.

    Attributes:
        release: why there are no more: nothing else waits (`idle`), the budget (`full`), or only work of other keys
            waits (`shape_change`).
        fill: share of the budget that is used, the greater of rows and bytes, at most 1.
    """

    parts: list[Part[T]] = field(default_factory=list)
    expired: list[Item[T]] = field(default_factory=list)
    release: str = "idle"
    fill: float = 0.0

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(part.stop - part.start for part in self.parts)


class Batcher(Generic[T]):
    """The queue.

    Args:
        max_rows: of a batch.
        max_bytes: of the rows of a batch.
    """

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._queue: OrderedDict[int, Item[T]] = OrderedDict()
        self.rows = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def oldest(self) -> float | None:
        """Return when the item came that waits longest for its first row; None where none does."""
        # Those that wait for their first row stand in the order in which they came.
        return next((item.enqueued for item in self._queue.values() if not item.handed), None)

    def add(self, item: Item[T]) -> None:
        """Put work at the end."""
        self._queue[id(item)] = item
        self._count(item, item.left)

    def remove(self, item: Item[T]) -> bool:
        """Drop what was not handed out of some work; tell whether there was anything."""
        if self._queue.pop(id(item), None) is None:
            return False
        self._count(item, -item.left)
        return True

    def take(self, now: float) -> Batch[T]:
        """Hand out the next batch; it has no parts where there is no work that is still in time."""
        parts: list[Part[T]] = []
        expired: list[Item[T]] = []
        rows, room = self._max_rows, self._max_bytes
        first: Item[T] | None = None
        for item in self._ahead(now, expired):
            if first is not None and (item.key is None or item.key != first.key):
                continue
            count = min(item.left, rows, room // max(1, item.row_bytes))
            if first is None:
                first, count = item, max(1, count)
            if count < 1:
                break
            parts.append(Part(item, item.handed, item.handed + count))
            rows, room = rows - count, room - count * item.row_bytes
            if rows < 1 or first.key is None:
                break
        for part in parts:
            self._hand_out(part)
        if first is None:
            return Batch(parts, expired)
        is_full = rows < 1 or room < first.row_bytes
        release = "idle" if not self._queue else "full" if is_full else "shape_change"
        return Batch(parts, expired, release, max(1 - rows / self._max_rows, min(1.0, 1 - room / self._max_bytes)))

    def _ahead(self, now: float, expired: list[Item[T]]) -> list[Item[T]]:
        """Return the items at the head that are in time, and drop those that are not."""
        found: list[Item[T]] = []
        for item in list(self._queue.values()) if len(self._queue) <= _LOOK_AHEAD else self._first():
            if item.deadline is not None and item.deadline <= now:
                self.remove(item)
                expired.append(item)
            else:
                found.append(item)
        return found if found or not self._queue else self._ahead(now, expired)

    def _first(self) -> list[Item[T]]:
        values = iter(self._queue.values())
        return [next(values) for _ in range(_LOOK_AHEAD)]

    def _hand_out(self, part: Part[T]) -> None:
        item = part.item
        self._count(item, part.start - part.stop)
        item.handed = part.stop
        if item.left:
            self._queue.move_to_end(id(item))
        else:
            del self._queue[id(item)]

    def _count(self, item: Item[T], rows: int) -> None:
        self.rows += rows
        self.bytes += rows * item.row_bytes
