"""From a hot batch to kernel launches and back."""

import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from logitd_kernels.head import Floats, Ids
from logitd_kernels.hot import OK, HotBatch, HotResult
from logitd_kernels.select.triton import search, selection, statistics
from logitd_kernels.select.triton.row import NUMBERS, TOKENS
from logitd_kernels.select.triton.staging import Arena, Staging
from logitd_kernels.select.triton.steps import ANSWERS

SEGMENT = 4096  # tokens that one program of the statistics reads
WINDOW = 1024  # logits that the selection holds in registers
_CHUNK, _CHUNKS = 128, 1024  # the fewest tokens a chunk has, and the most chunks a row has, until a chunk is a segment
_NARROW_T = 1e-30, 1e30  # temperatures whose inverse float32 holds well
_LARGEST = float(np.finfo(np.float64).max)

STATISTICS_WARPS, SELECT_WARPS = 8, 8


@dataclass(frozen=True)
class Shape:
    """How a row of V tokens is divided: fixed by V alone, so that a row's sums are the same in every batch."""

    vocab_size: int
    chunk: int
    chunks: int
    segments: int

    @classmethod
    def of(cls, vocab_size: int) -> "Shape":
        """Return the division of a row."""
        chunk = min(max(_CHUNK, triton.next_power_of_2(triton.cdiv(vocab_size, _CHUNKS))), SEGMENT)
        return cls(vocab_size, chunk, triton.cdiv(vocab_size, chunk), triton.cdiv(vocab_size, SEGMENT))


@dataclass(frozen=True)
class Prepared:
    """A batch on the device, and the memory its kernels write; shapes and pointers alone fix the launches."""

    shape: Shape
    x: torch.Tensor  # [*, V]
    mask: torch.Tensor | None  # [R, words] int32
    tokens: torch.Tensor  # [R, TOKENS] int64
    numbers: torch.Tensor  # [R, NUMBERS] float64
    sums: torch.Tensor  # [R, SUMS, segments] float64
    places: torch.Tensor  # [R, PLACES, segments] int32
    maxima: torch.Tensor  # [R, chunks] float64
    listed: torch.Tensor  # [R, chunks] int32
    window: torch.Tensor  # [R, WINDOW] float64
    answers: torch.Tensor  # [R, ANSWERS] float64

    def launch(self) -> None:
        """Enqueue the two kernels on the current stream: no allocation, no synchronisation, so a graph may hold them."""
        rows, shape = len(self.tokens), self.shape
        words = 0 if self.mask is None else self.mask.shape[1]
        statistics.statistics_kernel[(rows, shape.segments)](
            self.x, self.mask, self.tokens, self.numbers, self.sums, self.places, self.maxima,
            self.x.stride(0), shape.vocab_size, words, shape.chunks,
            CHUNK=shape.chunk, SEGMENT=SEGMENT, num_warps=STATISTICS_WARPS,
        )  # fmt: skip
        for kernel in (selection.select_kernel, search.search_kernel):
            kernel[(rows,)](
                self.x, self.mask, self.tokens, self.numbers, self.sums, self.places, self.maxima,
                self.listed, self.window, self.answers,
                self.x.stride(0), shape.vocab_size, words, shape.chunks, shape.segments,
                CHUNK=shape.chunk, CHUNKS=triton.next_power_of_2(shape.chunks),
                SEGMENTS=triton.next_power_of_2(shape.segments), WINDOW=self.window.shape[1],
                num_warps=SELECT_WARPS, enable_fp_fusion=False,  # a logit weighs the same wherever it is weighed
            )  # fmt: skip


class Device:
    """The kernels on one device: its memory and its staging. One batch at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._arena = Arena(device)
        self._staging = Staging(device)
        self._lock = threading.Lock()

    def sample(self, batch: HotBatch) -> HotResult:
        """Run the hot chain; rows that need float64 apart from the rest."""
        result = HotResult.empty(len(batch.rows))
        wide = _wide(batch)
        with self._lock:
            for part in (np.flatnonzero(~wide), np.flatnonzero(wide)):
                if len(part):
                    prepared = self.prepare(batch, part)
                    prepared.launch()
                    _report(prepared.answers.cpu().numpy(), batch.temperature[part] == 0, part, result)
        return result

    def prepare(self, batch: HotBatch, part: Ids) -> Prepared:
        """Bring some rows of a batch, all wide or none, and their parameters to the device."""
        shape, rows = Shape.of(batch.logits.shape[1]), len(part)
        x, at = self._logits(batch, part)
        mask = None if batch.mask is None else self._sent("mask", batch.mask[part].view(np.int32))
        take = self._arena.take
        return Prepared(
            shape=shape,
            x=x,
            mask=mask,
            tokens=self._sent("tokens", _tokens(batch, part, at)),
            numbers=self._sent("numbers", _numbers(batch, part)),
            sums=take("sums", (rows, statistics.SUMS.value, shape.segments), torch.float64),
            places=take("places", (rows, statistics.PLACES.value, shape.segments), torch.int32),
            maxima=take("maxima", (rows, shape.chunks), torch.float64),
            listed=take("listed", (rows, shape.chunks), torch.int32),
            window=take("window", (rows, WINDOW), torch.float64),
            answers=take("answers", (rows, ANSWERS.value), torch.float64),
        )

    def _logits(self, batch: HotBatch, part: Ids) -> tuple[torch.Tensor, Ids]:
        """Return logits on the device and which of their rows are meant; edited rows are a copy."""
        logits, rows = batch.logits.detach(), batch.rows[part]
        edits = _edits(batch, part)
        here = logits.device.type == self.device.type
        if here and logits.stride(1) == 1 and not len(edits[0]):
            return logits, rows
        pitch = -(-logits.shape[1] // _CHUNK) * _CHUNK  # every chunk begins on a boundary
        x = self._arena.take("logits", (len(part), pitch), logits.dtype)[:, : logits.shape[1]]
        if here:
            x.copy_(logits[torch.from_numpy(rows).to(self.device)])
        else:
            self._staging.send(logits, rows, x)
        return self._edited(x, edits), np.arange(len(part))

    def _edited(self, x: torch.Tensor, edits: tuple[Ids, Ids, Floats]) -> torch.Tensor:
        """Add biases; a row with a finite one becomes float64, and NaN and +inf stay to be found."""
        rows, ids, bias = (self._sent(name, part) for name, part in zip(("row", "id", "bias"), edits, strict=True))
        if np.isfinite(edits[2]).any():
            x = x.double()
        old = x[rows, ids]
        x[rows, ids] = torch.where(old == torch.inf, old, (old + bias).to(x.dtype))
        return x

    def _sent(self, name: str, array: NDArray[Any]) -> torch.Tensor:
        host = torch.from_numpy(np.ascontiguousarray(array))
        sent = self._arena.take(name, tuple(host.shape), host.dtype)
        sent.copy_(host)
        return sent


@cache
def device_here() -> Device:
    """Return the device of this process: the current CUDA device, or the CPU when kernels are interpreted."""
    return Device(torch.device("cpu" if triton.knobs.runtime.interpret else "cuda"))


def _wide(batch: HotBatch) -> NDArray[np.bool_]:
    """Return which rows are computed in float64: [R]."""
    counted = np.concatenate([[0], np.cumsum(np.isfinite(batch.edit_bias))])
    biased = np.diff(counted[batch.edit_offsets]) > 0
    low, high = _NARROW_T
    extreme = (batch.temperature != 0) & ~((low < batch.temperature) & (batch.temperature < high))
    return biased | extreme | (batch.logits.dtype == torch.float64)


def _edits(batch: HotBatch, part: Ids) -> tuple[Ids, Ids, Floats]:
    """Return places within `part`, ids and biases of all edits of its rows."""
    starts, lengths = batch.edit_offsets[part], np.diff(batch.edit_offsets)[part]
    rows = np.repeat(np.arange(len(part)), lengths)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(starts, lengths) + within
    return rows, batch.edit_ids[places], batch.edit_bias[places]


def _tokens(batch: HotBatch, part: Ids, at: Ids) -> Ids:
    tokens = np.empty((len(part), TOKENS.value), np.int64)
    tokens[:, 0] = at
    tokens[:, 1] = batch.seed[part].view(np.int64)
    tokens[:, 2] = batch.stream[part]
    tokens[:, 3] = batch.step[part]
    return tokens


def _numbers(batch: HotBatch, part: Ids) -> Floats:
    temperature, greedy = batch.temperature[part], batch.temperature[part] == 0
    numbers = np.empty((len(part), NUMBERS.value))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        numbers[:, 0] = np.where(greedy, 1.0, np.minimum(1.0 / temperature, _LARGEST))
        numbers[:, 1] = np.where(batch.min_p[part] > 0, temperature * np.log(batch.min_p[part]), -np.inf)
    numbers[:, 2] = batch.top_p[part]
    numbers[:, 3] = batch.top_k[part]
    numbers[:, 4] = batch.ties_all[part]
    numbers[:, 5] = greedy
    return numbers


def _report(answers: Floats, greedy: NDArray[np.bool_], part: Ids, result: HotResult) -> None:
    status, place, token, delta, d, energy, kept, mass, kept_energy = answers.T
    result.status[part] = status
    result.place[part] = place
    drawn, point = (status == OK) & ~greedy, (status == OK) & greedy
    to = part[drawn]
    result.token[part[status == OK]] = token[status == OK]
    result.logprob[to] = np.minimum(0.0, delta[drawn] - np.log(mass[drawn]))
    result.entropy[to] = _entropy(d[drawn], energy[drawn])
    result.entropy_kept[to] = _entropy(mass[drawn], kept_energy[drawn])
    result.kept[to] = kept[drawn]
    result.kept_mass[to] = np.minimum(1.0, mass[drawn] / d[drawn])
    for numbers, value in ((result.logprob, 0), (result.entropy, 0), (result.entropy_kept, 0), (result.kept_mass, 1)):
        numbers[part[point]] = value
    result.kept[part[point]] = 1


def _entropy(mass: Floats, energy: Floats) -> Floats:
    return np.maximum(0.0, np.log(mass) + energy / mass)
