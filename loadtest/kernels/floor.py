"""The floor: a pass for the maximum and a pass for Σ e^(x − M), on one thread. No sampler does less."""

from collections.abc import Callable

import numpy as np
from loadtest.kernels.cases import Work
from loadtest.kernels.ours import compiled_backend
from loadtest.kernels.timing import Contender
from numpy.typing import NDArray

Pass = Callable[[NDArray[np.float32]], float]


def floor_pass() -> tuple[Pass, str]:
    """Return the compiled backend's own pass where it is built, else numpy's, and what it is."""
    compiled: Pass | None = getattr(compiled_backend(), "floor_pass", None)
    return (compiled, "compiled") if compiled else (_numpy_pass(), "numpy stand-in")


def floor(work: Work) -> Contender:
    """Return the floor of some work: float32 whatever its dtype."""
    run, _ = floor_pass()
    blocks = [[row.float().contiguous().numpy() for row in block] for block in work.blocks]

    def call(index: int) -> None:
        for row in blocks[index % len(blocks)]:
            run(row)

    return Contender("floor", call, work.batch)


def _numpy_pass() -> Pass:
    scratch = np.zeros(0, np.float32)

    def run(row: NDArray[np.float32]) -> float:
        nonlocal scratch
        if len(scratch) != len(row):
            scratch = np.empty_like(row)
        np.subtract(row, row.max(), out=scratch)
        return float(np.exp(scratch, out=scratch).sum())

    return run
