"""Our own backends as contenders: the public call, and the native call that has no Python a row."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from loadtest.kernels.cases import Case, Work
from loadtest.kernels.timing import Contender

import logitd_kernels
from logitd_kernels import Backend, DenseRows, RowResult, check, sample, softmax


def set_threads(count: int) -> None:
    """Let torch and the compiled backend use so many threads."""
    torch.set_num_threads(count)
    compiled = compiled_backend()
    if compiled is not None:
        compiled.set_threads(count)


def compiled_backend() -> Any:  # noqa: ANN401  (a module, of whatever commit)
    """Return the module of the compiled backend, None where it is not built."""
    if logitd_kernels.available().get("cpu", "absent") is not None:
        return None
    from logitd_kernels.select import cpu

    return cpu


def all_threads() -> int:
    """Return how many threads this process may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def backends() -> tuple[list[Backend], dict[str, str]]:
    """Return the backends that compute here on the CPU, and why the others do not."""
    absent = {name: reason for name, reason in logitd_kernels.available().items() if reason is not None}
    here = [name for name in logitd_kernels.available() if name not in absent and name not in ("auto", "triton")]
    return [logitd_kernels.pick(name) for name in here], absent


def contenders(work: Work) -> list[Contender]:
    """Return every way our backends can do the work; the reference is no matter of batches."""
    here = [backend for backend in backends()[0] if work.batch == 1 or backend.name != "reference"]
    if work.case.softmax:
        return _softmax(work, here)
    made = [maker(work, backend) for backend in here for maker in (native, python)]
    return [contender for contender in made if contender]


def native(work: Work, backend: Backend) -> Contender | None:
    """Return the compiled hot chain on arrays that are ready, None where there is none or it does not do this."""
    hot: Callable[[Any], Any] | None = getattr(backend, "hot", None)
    if hot is None:
        return None
    from logitd_kernels.hot import HOT, hot_batch

    if not set(work.case.params) <= HOT:
        return None
    batches = []
    for number, block in enumerate(work.blocks):
        values = _values(work.case, number, len(block))
        batch = len(block)
        seeds = [one["seed"] for one in values]
        batches.append(hot_batch(block, range(batch), values, seeds, [None] * batch, [{}] * batch))
    run = hot

    def call(index: int) -> Any:  # noqa: ANN401  (an int64 array)
        return run(batches[index % len(batches)])["token"]

    return Contender(f"{backend.name} native", call, work.batch, ours=True)


def python(work: Work, backend: Backend) -> Contender:
    """Return the public call: rows and parameters in, a list of answers out."""
    params = [_values(work.case, number, len(block)) for number, block in enumerate(work.blocks)]

    def call(index: int) -> list[int]:
        place = index % len(params)
        answers = sample(DenseRows(work.blocks[place]), params[place], backend=backend)
        return [answer.tokens[0] if isinstance(answer, RowResult) else -1 for answer in answers]

    return Contender(f"{backend.name} python", call, work.batch, ours=True)


def _softmax(work: Work, here: list[Backend]) -> list[Contender]:
    temperatures = [work.case.temperature] * work.batch
    chosen: list[tuple[str, dict[str, Any]]] = [("logitd python", {})]
    if "backend" in inspect.signature(softmax).parameters:
        able = [backend for backend in here if backend.name != "reference"]  # it shares torch's
        chosen = [(f"{backend.name} python", {"backend": backend}) for backend in able]

    def contender(name: str, options: dict[str, Any]) -> Contender:
        def call(index: int) -> None:
            softmax(DenseRows(work.blocks[index % len(work.blocks)]), temperatures, **options)

        return Contender(name, call, work.batch, ours=True)

    return [contender(name, options) for name, options in chosen]


def _values(case: Case, block: int, batch: int) -> list[Any]:
    """Return checked parameters a row, every row with a draw of its own."""
    return [check({**case.params, "seed": 1, "step": block * batch + row}) for row in range(batch)]
