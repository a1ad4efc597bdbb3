"""What a call holds beyond its inputs at its peak, told by the kernel of the operating system.

Each call has a process of its own, forked from one that has done nothing but import. Its resident peak after the call,
less what was resident before it, is the call's; small blocks apart, freed memory goes back at once, so that a call
cannot live on what was freed before it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from loadtest.attention.curve import ASYMPTOTIC, MEMORY, Curve
from loadtest.attention.methods import NAMED
from loadtest.attention.work import Work
from loadtest.kernels.machine import ROOT

_STATUS = Path("/proc/self/status")
_WARM = 256  # keys: what a first call loads is not the call's
_MAPPED = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc: blocks from this size on come and go with their pages


def absent() -> dict[str, str]:
    """Return why memory cannot be measured here, nothing where it can."""
    able = _STATUS.exists() and "VmHWM" in _STATUS.read_text()
    return {} if able else {MEMORY: f"no resident peak in {_STATUS}"}


def curves(methods: Sequence[str], lengths: Sequence[int]) -> list[Curve]:
    """Measure the memory of some methods, not causal and causal, at lengths from 4096 on, at least two of them."""
    lengths = [length for length in lengths if length >= ASYMPTOTIC]
    rows = [(method, causal) for method in methods for causal in (False, True)]
    bytes_of = peaks([(method, causal, length) for method, causal in rows for length in lengths])
    return [
        Curve.of(MEMORY, method, causal, {length: {0: float(bytes_of[method, causal, length])} for length in lengths})
        for method, causal in rows
    ]


Case = tuple[str, bool, int]  # method, causal, length


def peaks(cases: Sequence[Case]) -> dict[Case, int]:
    """Return the bytes that each call held at its peak beyond its inputs, its output among them."""
    command = [sys.executable, "-m", __name__, json.dumps(cases)]
    run = subprocess.run(command, cwd=ROOT, env=os.environ | _MAPPED, check=True, stdout=subprocess.PIPE, text=True)
    return dict(zip(cases, map(int, run.stdout.split()), strict=True))


def _main(cases: Sequence[Case]) -> int:
    """Print the bytes of each case, one a line, each measured in a fork; returns the exit status."""
    torch.set_num_threads(1)
    for method, causal, length in cases:
        child = os.fork()
        if not child:
            _tell(method, causal, length)
        if os.waitpid(child, 0)[1]:
            return 1
    return 0


def _tell(method: str, causal: bool, length: int) -> None:
    """Print what one call holds and end this process, without the clean-up that is its parent's."""
    status = 1
    try:
        print(_peak(method, Work(_WARM, causal), Work(length, causal)), flush=True)
        status = 0
    finally:
        os._exit(status)


def _peak(method: str, warm: Work, work: Work) -> int:
    attend = NAMED[method].attend
    attend(warm.call)
    call = work.call
    before = _resident("VmRSS")
    output = attend(call)
    peak = _resident("VmHWM") - before
    assert peak >= output.nbytes // 2, f"{method} at {work.length}: {peak} bytes cannot hold its output"
    return peak


def _resident(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
