"""Moving rows of logits to the device, and memory that every batch reuses."""

import math
from typing import Any

import numpy as np
import torch

from logitd_kernels.head import Ids


class Arena:
    """Named memory that grows and is never given back; what it returns is overwritten by the next batch."""

    def __init__(self, device: torch.device, *, pinned: bool = False) -> None:
        self._device = device
        self._pinned = pinned
        self._held: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return uninitialised memory of a shape and dtype."""
        size = math.prod(shape) * dtype.itemsize
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = torch.empty(size, dtype=torch.uint8, device=self._device, pin_memory=self._pinned)
            self._held[name] = held
        return held[:size].view(dtype).view(shape)


class Staging:
    """Two halves of pinned memory, one filled by the CPU while the other travels, on a stream of their own.

    Consecutive rows that are pinned already travel without the copy. For interpreted kernels the device is the CPU, and
    streams do nothing.

    Args:
        device: where rows go.
        half_bytes: the size of a half, which holds at least one row.
    """

    def __init__(self, device: torch.device, half_bytes: int = 16 << 20) -> None:
        self._half_bytes = half_bytes
        self._api: Any = getattr(torch, device.type)
        self._memory = Arena(torch.device("cpu"), pinned=device.type == "cuda")
        self._stream = self._api.Stream()
        self._left = [self._api.Event() for _ in range(2)]

    def send(self, logits: torch.Tensor, rows: Ids, out: torch.Tensor) -> None:
        """Copy rows of logits [B, V], any strides, into `out` [R, V], contiguous, on the device.

        Returns before they have arrived: the current stream waits for them, and `logits` must keep until it has.
        """
        self._stream.wait_stream(self._api.current_stream())  # `out` may still be read
        run = logits[rows[0] : rows[0] + len(rows)]
        if logits.is_pinned() and run.is_contiguous() and np.array_equal(rows, rows[0] + np.arange(len(rows))):
            with self._api.stream(self._stream):
                out.copy_(run, non_blocking=True)
        else:
            self._through_halves(logits, torch.from_numpy(rows), out)
        self._api.current_stream().wait_stream(self._stream)

    def _through_halves(self, logits: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
        vocab_size = logits.shape[1]
        step = max(1, self._half_bytes // (vocab_size * logits.dtype.itemsize))
        for turn, part in enumerate(torch.split(rows, step)):
            left = self._left[turn % 2]
            left.synchronize()
            half = self._memory.take(f"half {turn % 2}", (len(part), vocab_size), logits.dtype)
            torch.index_select(logits, 0, part, out=half)
            with self._api.stream(self._stream):
                out[turn * step : turn * step + len(part)].copy_(half, non_blocking=True)
                left.record(self._stream)
