"""How the cost grows with V and with B: linear is a slope of 1 on log-log axes.

Every point reads rows out of the same 64 MB, so that a small batch is no more in cache than a large one.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from loadtest.kernels import ours
from loadtest.kernels.cases import Case, Work
from loadtest.kernels.claims import subject
from loadtest.kernels.timing import Budget, Spread, alternate, slope

MOST = 1.05
_ELEMENTS = 1 << 24
_BATCH_VOCAB = 1 << 16
VOCABS = tuple(1 << power for power in range(13, 19))  # 8,192 to 262,144
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_HEAD = Case("top_k 50, top_p 0.9", {"temperature": 0.8, "top_k": 50, "top_p": 0.9})
_FLAT = Case("top_p 0.9", {"top_p": 0.9})


@dataclass(frozen=True)
class Curve:
    """Seconds a call against a size, on one thread.

    Attributes:
        axis: `V` or `B`.
        label: rows and parameters.
        contender: the backend.
        sizes, seconds: its points.
        slope: of log(seconds) over log(size).
    """

    axis: str
    label: str
    contender: str
    sizes: tuple[int, ...]
    seconds: tuple[Spread, ...]
    slope: float


def curves(budget: Budget) -> list[Curve]:
    """Measure cost over V for N(0, 3) rows with a head and N(0, 1) rows without, and over B."""
    ours.set_threads(1)
    numbers = np.random.default_rng(5).standard_normal(_ELEMENTS, np.float32)
    noise = torch.from_numpy(numbers)
    spiky = noise * 3
    over_v = [
        _curve("V", f"{rows} rows, {case.name}", [_work(data, case, vocab, 1) for vocab in VOCABS], VOCABS, budget)
        for rows, data, case in (("N(0, 3)", spiky, _HEAD), ("N(0, 1)", noise, _FLAT))
    ]
    batches = [_work(spiky, _HEAD, _BATCH_VOCAB, batch) for batch in BATCHES]
    label = f"N(0, 3) rows, {_HEAD.name}, V = {_BATCH_VOCAB:,}"
    return [*over_v, _curve("B", label, batches, BATCHES, budget)]


def _work(data: torch.Tensor, case: Case, vocab: int, batch: int) -> Work:
    return Work.of("noise", case, data.view(-1, vocab), batch)


def _curve(axis: str, label: str, works: list[Work], sizes: tuple[int, ...], budget: Budget) -> Curve:
    """Visit all sizes once a round: what slows a moment slows all of them."""
    contenders = [replace(subject(work), name=str(size)) for work, size in zip(works, sizes, strict=True)]
    times = alternate(contenders, budget)
    calls = [
        Spread.of([row * work.batch for row in times[str(size)].values()])
        for work, size in zip(works, sizes, strict=True)
    ]
    return Curve(axis, label, subject(works[0]).name, sizes, tuple(calls), slope(sizes, [one.median for one in calls]))
