"""Buffers that bodies are received into: a bounded pool, and memory that comes back when its last reader lets go."""

import mmap
import threading
import weakref
from collections import deque
from functools import partial

import numpy as np
from numpy.typing import NDArray

Block = bytearray | mmap.mmap

_MAPPED_BYTES = 1 << 18  # from here on zeroing memory that is about to be written costs more than mapping it
_SMALLEST_BYTES = 1 << 15  # below, asking for memory costs no more than keeping it
_LARGEST_SHARE = 4  # no block takes more than a quarter of the pool


class StagingPool:
    """Lends buffers, and lends them again once nobody can see them any more.

    A lease is a uint8 array of exactly the length that was asked for. Its memory returns to the pool when the array
    dies, and every view keeps it alive: memoryviews, slices, numpy and torch arrays over it. What does not fit into the
    pool is ordinary memory. Leases are taken on one thread; they may end on any.

    Args:
        total_bytes: most memory that the pool keeps, lent and free together; 0 pools nothing.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._free: dict[int, deque[Block]] = {}
        self._held_bytes = 0
        self._lent: dict[int, weakref.ref[NDArray[np.uint8]]] = {}  # `finalize` would do, at ten times the cost
        self._lock = threading.Lock()  # never taken where a lease ends: that may be in the middle of a collection

    @property
    def held_bytes(self) -> int:
        """Memory of the pool, lent or free."""
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """Memory of the pool that nobody uses."""
        return sum(size * len(blocks) for size, blocks in self._free.items())

    def lease(self, length: int) -> NDArray[np.uint8]:
        """Return a buffer of `length` bytes; what is in it is whatever was, until it is written."""
        size = _block_bytes(length)
        if length < _SMALLEST_BYTES or size > self._total_bytes // _LARGEST_SHARE:
            return _array(_memory(length), length)
        with self._lock:
            free = self._free.setdefault(size, deque())
            block = _popped(free) or self._grown(size)
        if block is None:
            return _array(_memory(length), length)
        lent = _array(block, length)
        self._lent[id(lent)] = weakref.ref(lent, partial(self._take_back, id(lent), free, block))
        return lent

    def _take_back(self, lent: int, free: deque[Block], block: Block, _: object) -> None:
        free.append(block)
        del self._lent[lent]

    def _grown(self, size: int) -> Block | None:
        """Return a new block, for which free ones of other sizes make room; None where the pool is lent out."""
        for other, blocks in self._free.items():
            while self._held_bytes + size > self._total_bytes and _popped(blocks) is not None:
                self._held_bytes -= other
        if self._held_bytes + size > self._total_bytes:
            return None
        self._held_bytes += size
        return _memory(size)


def _block_bytes(length: int) -> int:
    """Return the size a length is rounded up to: two sizes an octave, so that at most a third is unused."""
    octave: int = 1 << max(0, length - 1).bit_length()
    return octave * 3 // 4 if octave >= 4 and length <= octave * 3 // 4 else octave


def _memory(size: int) -> Block:
    return mmap.mmap(-1, size) if size >= _MAPPED_BYTES else bytearray(size)


def _popped(blocks: deque[Block]) -> Block | None:
    try:
        return blocks.pop()  # the last one given back is the one most likely still in a cache
    except IndexError:
        return None


def _array(block: Block, length: int) -> NDArray[np.uint8]:
    return np.frombuffer(block, np.uint8, length) if length else np.empty(0, np.uint8)
