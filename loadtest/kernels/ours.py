"""Our own backends as contenders: the public call, and the native call that has no Python a row."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from loadtest.kernels.cases import PENALTIES, Work
from loadtest.kernels.timing import Contender

import logitd_kernels
from logitd_kernels import Backend, DenseRows, RowResult, sample, softmax


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
    from logitd_kernels.hot import HOT

    counted = set(PENALTIES) if getattr(backend, "counts_history", False) else set()
    if not set(work.case.params) <= HOT | counted:
        return None
    batches = [_batch(work, place) for place in range(len(work.blocks))]
    run = hot

    def call(index: int) -> Any:  # noqa: ANN401  (an int64 array)
        return run(batches[index % len(batches)])["token"]

    return Contender(f"{backend.name} native", call, work.batch, ours=True)


def _batch(work: Work, place: int) -> Any:  # noqa: ANN401  (a HotBatch, of whatever commit)
    from logitd_kernels.hot import hot_batch
    from logitd_kernels.rows import unpack_mask

    block, values, beside = work.blocks[place], work.values(place), work.beside(place)
    masks = beside.get("mask", [None] * len(block))
    allowed = [None if mask is None else unpack_mask(mask, block.shape[1]) for mask in masks]
    bias = [one["logit_bias"] or {} for one in values]
    seeds = [one["seed"] for one in values]
    history = {"history": (beside["prompt_ids"].numpy(), beside["output_ids"].numpy())} if work.case.history else {}
    return hot_batch(block, range(len(block)), values, seeds, allowed, bias, **history)


def python(work: Work, backend: Backend) -> Contender:
    """Return the public call: rows and parameters in, a list of answers out."""
    params = [work.values(place) for place in range(len(work.blocks))]
    beside = [work.beside(place) for place in range(len(work.blocks))]

    def call(index: int) -> list[int]:
        place = index % len(params)
        answers = sample(DenseRows(work.blocks[place], **beside[place]), params[place], backend=backend)
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
