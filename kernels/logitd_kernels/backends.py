"""The one place that picks a backend.

An explicit request must succeed or raise; `auto` may fall back, and tells why.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from logitd_kernels.errors import BackendUnavailable
from logitd_kernels.hot import Hot
from logitd_kernels.select import cpu
from logitd_kernels.select.ordered import OrderedRow
from logitd_kernels.select.reference import ReferenceRow
from logitd_kernels.select.torch import TorchRow


@dataclass(frozen=True)
class Backend:
    """A way to see rows along the total order.

    Attributes:
        name: as in the `backend` setting and in every answer.
        row: builds an `OrderedRow` from processed logits [V] and a temperature > 0.
        hot: runs the hot chain on a whole batch, where the backend has one.
        reason: why it was picked.
    """

    name: str
    row: Callable[[torch.Tensor, float], OrderedRow]
    hot: Hot | None
    reason: str


_ROWS: dict[str, Callable[[torch.Tensor, float], OrderedRow]] = {
    "cpu": TorchRow,
    "torch": TorchRow,
    "reference": ReferenceRow,
}
_HOT: dict[str, Hot] = {"cpu": cpu.sample_hot}
_MISSING = {"triton": "this build has no GPU kernels"}
NAMES = ("auto", *_ROWS, *_MISSING)


def available() -> dict[str, str | None]:
    """Return every backend's name with None, or the reason why it cannot run here."""
    return {**dict.fromkeys(_ROWS), "cpu": cpu.why_not(), **_MISSING}


def pick(name: str) -> Backend:
    """Return the backend of that name; `auto` takes the fastest that runs here.

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
    return Backend(name, _ROWS[name], _HOT.get(name), reason)
