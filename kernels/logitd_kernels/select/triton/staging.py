"""Moving rows of logits to the device, and the device memory that every batch reuses."""

import math
from typing import Any

import torch

from logitd_kernels.head import Ids


class Arena:
    """Named device memory that grows and is never given back; what it returns is overwritten by the next batch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return uninitialised memory of a shape and dtype."""
        size = math.prod(shape) * dtype.itemsize
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = self._held[name] = torch.empty(size, dtype=torch.uint8, device=self._device)
        return held[:size].view(dtype).view(shape)


class Staging:
    """Two halves of pinned memory: one is filled by the CPU while the other travels, on a stream of their own.

    Logits that are pinned already travel without the copy. On the CPU, in interpreted tests, streams do nothing.
    """

    def __init__(self, device: torch.device, half_bytes: int = 16 << 20) -> None:
        self._device = device
        self._half_bytes = half_bytes
        self._api: Any = getattr(torch, device.type)
        self._stream = self._api.Stream()
        self._halves = [self._pinned(half_bytes) for _ in range(2)]
        self._left = [self._api.Event() for _ in range(2)]

    def send(self, logits: torch.Tensor, rows: Ids, out: torch.Tensor) -> None:
        """Copy rows of logits [B, V], any strides, into `out` [R, V] on the device; the current stream waits for them.

        Returns before they have arrived: `logits` must stay as they are until the current stream has been waited for.
        """
        self._stream.wait_stream(self._api.current_stream())  # `out` may still be read
        first, last = int(rows[0]), int(rows[-1]) + 1
        if logits.is_pinned() and logits.stride(1) == 1 and last - first == len(rows) and (rows[1:] > rows[:-1]).all():
            with self._api.stream(self._stream):
                out.copy_(logits[first:last], non_blocking=True)
        else:
            self._through_halves(logits, torch.from_numpy(rows), out)
        self._api.current_stream().wait_stream(self._stream)

    def _through_halves(self, logits: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
        row_bytes = logits.shape[1] * logits.dtype.itemsize
        if row_bytes > self._half_bytes:
            self._half_bytes = row_bytes
            for left in self._left:
                left.synchronize()
            self._halves = [self._pinned(row_bytes) for _ in range(2)]
        step = self._half_bytes // row_bytes
        for turn, first in enumerate(range(0, len(rows), step)):
            left = self._left[turn % 2]
            left.synchronize()
            part = rows[first : first + step]
            half = self._halves[turn % 2][: len(part) * row_bytes].view(logits.dtype).view(len(part), -1)
            torch.index_select(logits, 0, part, out=half)
            with self._api.stream(self._stream):
                out[first : first + len(part)].copy_(half, non_blocking=True)
                left.record(self._stream)

    def _pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
