"""The one place that picks a backend.

An explicit request must succeed or raise; `auto` may fall back, and tells why.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from logitd_kernels.errors import BackendUnavailable
from logitd_kernels.select.ordered import OrderedRow
from logitd_kernels.select.reference import ReferenceRow
from logitd_kernels.select.torch import TorchRow


@dataclass(frozen=True)
class Backend:
    """A way to see rows along the total order.

    Attributes:
        name: as in the `backend` setting and in every answer.
        row: builds an `OrderedRow` from processed logits [V] and a temperature > 0.
        reason: why it was picked.
    """

    name: str
    row: Callable[[torch.Tensor, float], OrderedRow]
    reason: str


_ROWS: dict[str, Callable[[torch.Tensor, float], OrderedRow]] = {"torch": TorchRow, "reference": ReferenceRow}
_MISSING = {
    "cpu": "this build has no compiled kernels",
    "triton": "this build has no GPU kernels",
}
NAMES = ("auto", *_ROWS, *_MISSING)


def available() -> dict[str, str | None]:
    """Return every backend's name with None, or the reason why it cannot run here."""
    return {**dict.fromkeys(_ROWS), **_MISSING}


def pick(name: str) -> Backend:
    """Return the backend of that name; `auto` takes the fastest that runs here.

    Raises:
        BackendUnavailable: the name is unknown, or an explicitly named backend cannot run here.
    """
    if name == "auto":
        return Backend("torch", TorchRow, f"auto: cpu is not available ({_MISSING['cpu']})")
    if name in _ROWS:
        return Backend(name, _ROWS[name], "requested")
    raise BackendUnavailable(name, _MISSING.get(name, f"unknown; known are {', '.join(NAMES)}"))
