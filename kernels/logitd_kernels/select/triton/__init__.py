"""The GPU backend: the hot chain in four kernels, from rows of logits to tokens and row results.

`statistics` reads the batch once, in parts of rows; then, one program a row, `selection` cuts and draws in the top of
the row, `search` where that is not deep enough, and `draw` finds the token's id. They stand on `row` (a row's tokens
and their weights), `crossing` (where a running weight crosses a target), `window` (what was gathered out of a row) and
`steps` (the order of the cuts). `staging` moves rows to the device, `launch` drives. Importing this package imports no
triton.
"""

import os
from importlib.util import find_spec

import torch

from logitd_kernels.hot import Answers, HotBatch

_OLDEST = (8, 0)  # the oldest compute capability that the kernels are compiled for in tests


def interpreted() -> bool:
    """Whether triton interprets kernels on the CPU: slowly, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def why_not() -> str | None:
    """Return why this backend cannot run here, None when it can."""
    if find_spec("triton") is None:
        return "triton is not installed: pip install 'logitd[gpu]'"
    if interpreted():
        return None
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    found = torch.cuda.get_device_capability()
    if found < _OLDEST:
        return f"the CUDA device has compute capability {found[0]}.{found[1]}, 8.0 is needed"
    return None


def sample_hot(batch: HotBatch) -> Answers:
    """Run the hot chain on the device: rows go in, tokens and row results come back.

    Sums along the total order are integers, so a row's answer has the same bits whatever the batch around it. A token
    is the reference's unless u lies within about 1e-12 of a boundary; `entropy` and `kept_mass` come from float32 sums
    (relative error below 8e-6, typically 1e-7) where logits are float32 or narrower, all else from float64 masses.
    Rows with a finite bias, float64 logits or a temperature outside [1e-30, 1e30] are computed in float64 throughout.

    Source: Milakov and Gimelshein 2018, arXiv:1805.02867 (m and d of a split row); Holtzman et al. 2020 (top_p).
    """
    from logitd_kernels.select.triton.launch import device_here

    return device_here().sample(batch)
