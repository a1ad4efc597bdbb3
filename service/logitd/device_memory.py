"""How much memory there is where rows are computed."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_STATM = Path("/proc/self/statm")


def device_memory(backend: str) -> tuple[Callable[[], float], Callable[[], float]] | None:
    """Return what tells the bytes that are used, and all that there are: of the GPU, or of the process and its machine.

    Args:
        backend: which computes; only `triton` does so on a GPU.
    Returns:
        None where the system does not say: off Linux.
    """
    if backend == "triton" and torch.cuda.is_available():
        return _gpu_used, _gpu_total
    if not _STATM.exists():
        return None
    total = _total()
    return _resident, lambda: total


def _gpu_used() -> float:
    free, total = torch.cuda.mem_get_info()
    return total - free


def _gpu_total() -> float:
    return torch.cuda.mem_get_info()[1]


def _resident() -> float:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _total() -> float:
    """Return what the control group may have, or what the machine has."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text().strip() for path in _LIMITS if path.exists()]
    return min([machine, *(int(limit) for limit in limits if limit.isdigit())])
