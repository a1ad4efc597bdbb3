"""The one place that picks a backend.

An explicit request must succeed or raise; `auto` may fall back, and tells why.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.errors import BackendUnavailable
from logitd_kernels.hot import Hot, Plain
from logitd_kernels.hot_heads import Heads
from logitd_kernels.select import cpu, thermo, triton
from logitd_kernels.select.ordered import OrderedRow
from logitd_kernels.select.reference import ReferenceRow
from logitd_kernels.select.torch import TorchRow

Softmax = Callable[
    [torch.Tensor, list[float], bool, torch.Tensor | None],
    tuple[NDArray[np.int32], NDArray[np.int64], torch.Tensor, torch.Tensor],
]


@dataclass(frozen=True)
class Backend:
    """A way to see rows along the total order.

    Attributes:
        name: as in the `backend` setting and in every answer.
        row: builds an `OrderedRow` from processed logits [V] and a temperature > 0.
        hot: runs the hot chain on a whole batch, where the backend has one.
        counts_history: whether that takes the penalties too.
        heads: runs it on a whole batch of heads.
        plain: runs it on rows in a buffer.
        softmax: computes whole distributions of a batch, where the backend can (`select/cpu.py`).
        thermo: computes Boltzmann sums of a batch (`select/thermo.py`).
        reason: why it was picked.
    """

    name: str
    row: Callable[[torch.Tensor, float], OrderedRow]
    hot: Hot | None
    counts_history: bool
    heads: Heads | None
    plain: Plain | None
    softmax: Softmax | None
    thermo: thermo.Thermo
    reason: str

    def describe(self) -> dict[str, str | int]:
        """Return name, reason and, where they matter, instruction set and threads."""
        told: dict[str, str | int] = {"name": self.name, "reason": self.reason}
        return told | ({"isa": cpu.isa(), "threads": cpu.threads()} if self.name == "cpu" else {})


_ROWS: dict[str, Callable[[torch.Tensor, float], OrderedRow]] = {
    "cpu": TorchRow,
    "triton": TorchRow,
    "torch": TorchRow,
    "reference": ReferenceRow,
}
_HOT: dict[str, Hot] = {"cpu": cpu.sample_hot, "triton": triton.sample_hot}
NAMES = ("auto", *_ROWS)


def available() -> dict[str, str | None]:
    """Return every backend's name with None, or the reason why it cannot run here."""
    return {**dict.fromkeys(_ROWS), "cpu": cpu.why_not(), "triton": triton.why_not()}


def set_threads(count: int) -> None:
    """Set how many threads share the rows of a batch, where the compiled kernels are there; answers do not change."""
    if cpu.why_not() is None:
        cpu.set_threads(count)


def pick(name: str) -> Backend:
    """Return the backend of that name; `auto` takes the fastest for rows that are in this machine's memory.

    That is never `triton`: rows reach a GPU slower than `cpu` reads them, so it is for who asks for it.

    Raises:
        BackendUnavailable: the name is unknown, or an explicitly named backend cannot run here.
    """
    if name == "auto":
        missing = cpu.why_not()
        if missing is None:
            return _backend("cpu", "auto: compiled for this machine")
        return _backend("torch", f"auto: cpu is not available, {missing}")
    why_not = available().get(name, f"unknown; known are {', '.join(NAMES)}")
    if why_not is not None:
        raise BackendUnavailable(name, why_not)
    return _backend(name, "requested")


def _backend(name: str, reason: str) -> Backend:
    compiled = name in _HOT and cpu.why_not() is None  # heads are short: triton's stay in this machine's memory
    heads = cpu.sample_heads if compiled else None
    plain, softmax = (cpu.sample_plain, cpu.softmax) if name == "cpu" else (None, None)
    sums = thermo.compiled if name == "cpu" else thermo.portable
    return Backend(name, _ROWS[name], _HOT.get(name), name == "cpu", heads, plain, softmax, sums, reason)
