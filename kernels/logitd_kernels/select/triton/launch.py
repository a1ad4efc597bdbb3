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
from logitd_kernels.hot import ANSWER, OK, Answers, HotBatch, Requests
from logitd_kernels.select.triton import interpreted
from logitd_kernels.select.triton.draw import token_kernel
from logitd_kernels.select.triton.search import search_kernel
from logitd_kernels.select.triton.selection import select_kernel
from logitd_kernels.select.triton.staging import Arena, Staging
from logitd_kernels.select.triton.statistics import PLACES, SUMS, statistics_kernel
from logitd_kernels.select.triton.steps import ANSWERS, PENDING

SEGMENT = 4096  # tokens that one program of the statistics reads
WINDOW = 1024  # logits that a row's window has room for
_CHUNK, _CHUNKS = 128, 1024  # the fewest tokens of a chunk, and the most chunks of a row until a chunk is a segment
_NARROW_T = 1e-30, 1e30  # between these, 1/T and (x − M)/T are as good in float32 as at T = 1
_LARGEST = float(np.finfo(np.float64).max)

# How each kernel is compiled. A logit must weigh the same wherever it is weighed: no contraction.
OPTIONS: dict[Any, dict[str, Any]] = {
    statistics_kernel: {"num_warps": 8},
    select_kernel: {"num_warps": 8, "enable_fp_fusion": False},
    search_kernel: {"num_warps": 8, "enable_fp_fusion": False},
    token_kernel: {"num_warps": 8},
}


@dataclass(frozen=True)
class Division:
    """How a row of V tokens is divided: fixed by V alone, so that a row's sums have the same bits in every batch."""

    vocab_size: int
    chunk: int
    chunks: int
    segments: int

    @classmethod
    def of(cls, vocab_size: int) -> "Division":
        """Return the division of a row."""
        chunk = min(max(_CHUNK, triton.next_power_of_2(triton.cdiv(vocab_size, _CHUNKS))), SEGMENT)
        return cls(vocab_size, chunk, triton.cdiv(vocab_size, chunk), triton.cdiv(vocab_size, SEGMENT))

    def constants(self, kernel: Any, window: int) -> dict[str, int]:
        """Return what a kernel is compiled for."""
        every = {
            "CHUNK": self.chunk,
            "CHUNKS": triton.next_power_of_2(self.chunks),
            "SEGMENT": SEGMENT,
            "SEGMENTS": triton.next_power_of_2(self.segments),
            "WINDOW": window,
        }
        return {name: value for name, value in every.items() if name in kernel.arg_names}


@dataclass(frozen=True)
class Prepared:
    """Rows on the device, and the memory that the kernels write: with the division of a row, all that a launch needs.

    Attributes:
        x: [*, V], logits.
        mask: [R, words] int32, or None.
        tokens, numbers: [R, TOKENS] int64 and [R, NUMBERS] float64, parameters.
        sums, places, maxima: what the statistics found.
        listed, window: scratch.
        answers: [R, ANSWERS] float64.
    """

    division: Division
    x: torch.Tensor
    mask: torch.Tensor | None
    tokens: torch.Tensor
    numbers: torch.Tensor
    sums: torch.Tensor
    places: torch.Tensor
    maxima: torch.Tensor
    listed: torch.Tensor
    window: torch.Tensor
    answers: torch.Tensor

    def launch(self) -> None:
        """Enqueue the four kernels on the current stream, without allocating or waiting.

        Grids and arguments follow from R, V, dtype and the presence of a mask, so a CUDA graph may hold a launch. None
        is held here: R and V change from batch to batch, and rows are sent from memory that changes too.
        """
        self.launch_statistics()
        scratch = (self.listed, self.window, self.answers)
        for kernel in (select_kernel, search_kernel):
            self._run(kernel, 1, self.numbers, *self._found, *scratch, *self._sizes, self.division.segments)
        self._run(token_kernel, 1, self.maxima, self.listed, self.answers, *self._sizes)

    def launch_statistics(self) -> None:
        """Enqueue the first kernel alone: the one that reads all of the batch."""
        self._run(statistics_kernel, self.division.segments, self.numbers, *self._found, *self._sizes)

    @property
    def _found(self) -> tuple[torch.Tensor, ...]:
        return self.sums, self.places, self.maxima

    @property
    def _sizes(self) -> tuple[int, ...]:
        words = 0 if self.mask is None else self.mask.shape[1]
        return self.x.stride(0), self.division.vocab_size, words, self.division.chunks

    def _run(self, kernel: Any, parts: int, *arguments: Any) -> None:
        constants = self.division.constants(kernel, self.window.shape[1])
        grid = (len(self.tokens), parts)
        kernel[grid](self.x, self.mask, self.tokens, *arguments, **constants, **OPTIONS[kernel])


class Device:
    """The kernels on one device, its memory and its staging; one batch at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._arena = Arena(device)
        self._pinned = Arena(torch.device("cpu"), pinned=device.type == "cuda")
        self._staging = Staging(device)
        self._lock = threading.Lock()

    def sample(self, batch: HotBatch) -> Answers:
        """Run the hot chain; rows that need float64 apart from the rest."""
        result = np.empty(len(batch.requests), ANSWER)
        wide = _wide(batch)
        with self._lock:
            for part in (np.flatnonzero(~wide), np.flatnonzero(wide)):
                if len(part):
                    prepared = self.prepare(batch, part, wide=bool(wide[part[0]]))
                    prepared.launch()
                    _report(prepared.answers.cpu().numpy(), batch.requests["temperature"][part], part, result)
        return result

    def prepare(self, batch: HotBatch, part: Ids, *, wide: bool) -> Prepared:
        """Bring some rows of a batch, and their parameters, to the device; its memory is reused by the next call."""
        division, rows = Division.of(batch.logits.shape[1]), len(part)
        x, at = self._logits(batch, part, wide)
        take = self._arena.take
        return Prepared(
            division=division,
            x=x,
            mask=None if batch.mask is None else self._sent("mask", batch.mask[part].view(np.int32)),
            tokens=self._sent("tokens", _tokens(batch.requests[part], at)),
            numbers=self._sent("numbers", _numbers(batch.requests[part])),
            sums=take("sums", (rows, SUMS.value, division.segments), torch.float64),
            places=take("places", (rows, PLACES.value, division.segments), torch.int32),
            maxima=take("maxima", (rows, division.chunks), torch.float64),
            listed=take("listed", (rows, division.chunks), torch.int32),
            window=take("window", (rows, WINDOW), torch.float64),
            answers=take("answers", (rows, ANSWERS.value), torch.float64),
        )

    def _logits(self, batch: HotBatch, part: Ids, wide: bool) -> tuple[torch.Tensor, Ids]:
        """Return logits on the device, and which of their rows are meant; edited or widened rows are a copy."""
        logits, rows = batch.logits.detach(), batch.requests["row"][part]
        edits = _edits(batch, part)
        here = logits.device.type == self.device.type
        as_is = not len(edits[0]) and (logits.dtype == torch.float64 or not wide)
        if here and as_is and logits.stride(1) == 1:
            return logits, rows
        x = self._arena.take("logits", (len(part), logits.shape[1]), logits.dtype)
        if here:
            torch.index_select(logits, 0, torch.from_numpy(rows).to(self.device), out=x)
        else:
            self._staging.send(logits, rows, x)
        return self._edited(x.double() if wide else x, edits), np.arange(len(part))

    def _edited(self, x: torch.Tensor, edits: tuple[Ids, Ids, Floats]) -> torch.Tensor:
        """Add biases in place; NaN and +inf stay to be found."""
        if len(edits[0]):
            rows, ids, bias = (self._sent(name, one) for name, one in zip(("row", "id", "bias"), edits, strict=True))
            old = x[rows, ids]
            x[rows, ids] = torch.where(old == torch.inf, old, (old + bias).to(x.dtype))
        return x

    def _sent(self, name: str, array: NDArray[Any]) -> torch.Tensor:
        given = torch.from_numpy(np.ascontiguousarray(array))
        shape = tuple(given.shape)
        host, sent = (arena.take(name, shape, given.dtype) for arena in (self._pinned, self._arena))
        return sent.copy_(host.copy_(given), non_blocking=True)


@cache
def device_here() -> Device:
    """Return the device of this process: the current CUDA device, or the CPU when kernels are interpreted."""
    return Device(torch.device("cpu" if interpreted() else "cuda"))


def _wide(batch: HotBatch) -> NDArray[np.bool_]:
    """Return which rows are computed in float64: [R]."""
    requests = batch.requests
    counted = np.concatenate([[0], np.cumsum(np.isfinite(batch.edit_bias))])
    biased = counted[requests["edits_end"]] > counted[requests["edits_begin"]]
    temperature, (low, high) = requests["temperature"], _NARROW_T
    extreme = (temperature != 0) & ~((low < temperature) & (temperature < high))
    return np.asarray(biased | extreme | (batch.logits.dtype == torch.float64))


def _edits(batch: HotBatch, part: Ids) -> tuple[Ids, Ids, Floats]:
    """Return rows, counted within `part`, ids and biases of all edits of some rows."""
    begins = batch.requests["edits_begin"][part]
    lengths = batch.requests["edits_end"][part] - begins
    rows = np.repeat(np.arange(len(part)), lengths)
    places = np.arange(len(rows)) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return rows, batch.edit_ids[places], batch.edit_bias[places]


def _tokens(requests: Requests, at: Ids) -> Ids:
    columns = (at, requests["seed"].view(np.int64), requests["stream"], requests["step"])
    return np.stack([column.astype(np.int64) for column in columns], axis=1)


def _numbers(requests: Requests) -> Floats:
    temperature, min_p = requests["temperature"], requests["min_p"]
    greedy = temperature == 0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.where(greedy, 1.0, np.minimum(1.0 / temperature, _LARGEST))
        gap = np.where(min_p > 0, temperature * np.log(min_p), -np.inf)
    return np.stack([inverse, gap, requests["top_p"], requests["top_k"], requests["ties_all"], greedy], axis=1)


def _report(answers: Floats, temperature: Floats, part: Ids, result: Answers) -> None:
    status, place, token, value, _, m, d, energy, count, mass, kept_energy = answers.T
    if (status == PENDING.value).any():
        raise RuntimeError(f"row {part[np.argmax(status == PENDING.value)]} changed while it was sampled")
    result["status"][part] = status
    result["place"][part] = place
    result["token"][part] = token
    point = part[(status == OK) & (temperature == 0)]
    for numbers, number in (
        (result["logprob"], 0),
        (result["entropy"], 0),
        (result["entropy_kept"], 0),
        (result["kept_mass"], 1),
    ):
        numbers[point] = number
    result["kept"][point] = 1
    drawn = (status == OK) & (temperature > 0)
    to, d, mass = part[drawn], d[drawn], mass[drawn]
    result["logprob"][to] = np.minimum(0.0, (value - m)[drawn] / temperature[drawn] - np.log(mass))
    result["entropy"][to] = np.maximum(0.0, np.log(d) + energy[drawn] / d)
    result["entropy_kept"][to] = np.maximum(0.0, np.log(mass) + kept_energy[drawn] / mass)
    result["kept"][to] = count[drawn]
    result["kept_mass"][to] = np.minimum(1.0, mass / d)
