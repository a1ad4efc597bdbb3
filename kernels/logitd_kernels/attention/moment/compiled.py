"""A moment state in compiled loops, for float32: one head at a time."""

import torch

from logitd_kernels.attention.moment.calibrate import Basis
from logitd_kernels.native import module


def serves(dtype: torch.dtype) -> bool:
    """Tell whether the loops can and should compute in a dtype: float32, on a machine with multiply-adds."""
    return module is not None and dtype == torch.float32 and bool(module.fuses())


def maps(basis: Basis) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return c, K and Q of one head as the loops take them."""
    return basis.query_centre, basis.key_map.contiguous(), basis.query_map.contiguous()


def append(k: torch.Tensor, v: torch.Tensor, basis: Basis, sums: torch.Tensor, log_scale: torch.Tensor) -> None:
    """Add keys [N, T, d] and values [N, T, dv] to states, in place."""
    for head, (keys, values) in enumerate(zip(k.float(), v.float(), strict=True)):
        one = basis[head]
        state = sums[head], log_scale[head : head + 1]
        module.append(keys.contiguous(), values.contiguous(), one.key_centre, *maps(one), *state)


def read(
    q: torch.Tensor, scale: float, basis: Basis, sums: torch.Tensor, log_scale: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """Answer queries [N, n, d] times a scale into out [N, n, dv]; return which have none, [N, n] bool: theirs is 0."""
    bad = torch.empty(out.shape[:2], dtype=torch.bool)
    for head, queries in enumerate(q.float()):
        one = basis[head]
        state = sums[head], log_scale[head : head + 1]
        module.read(queries.contiguous(), scale, *maps(one), *state, out[head], bad[head])
    return bad
