"""What is not finite: kept out of the arithmetic, where 0 · NaN is NaN, and shown in the answers that it concerns."""

from collections.abc import Callable
from dataclasses import replace

import torch

from logitd_kernels.attention.call import Attended, Call

Attend = Callable[[Call, bool], Attended]


def attend_finite(row: Call, statistics: bool, attend: Attend) -> Attended:
    """Attend one batch row whose tensors hold NaN or infinities, by a method that takes finite ones alone.

    A query that is not finite, and one that sees a key that is not, gives NaN throughout; one that sees a value that
    is not finite gives NaN in that dim of its output.

    Args:
        row: a call of one batch row, without lengths.
        statistics: passed on.
        attend: from a finite call and `statistics` to its answer, whose tensors may be written to.
    """
    bad_q, bad_k, bad_v = (~torch.isfinite(tensor) for tensor in (row.q, row.k, row.v))
    clean = replace(row, q=row.q.masked_fill(bad_q, 0), k=row.k.masked_fill(bad_k, 0), v=row.v.masked_fill(bad_v, 0))
    attended = attend(clean, statistics)
    met = _meets(clean, torch.cat([bad_k.any(-1, keepdim=True), bad_v], -1), attend)
    bad = (bad_q.any(-1) & (attended.lse > -torch.inf)) | met[..., 0]
    attended.output.masked_fill_(bad[..., None] | met[..., 1:], torch.nan)
    for part in (attended.lse, attended.entropy, attended.max_prob):
        if part is not None:
            part.masked_fill_(bad, torch.nan)
    return attended


def _meets(row: Call, marks: torch.Tensor, attend: Attend) -> torch.Tensor:
    """Return whether a query sees a key with a mark, [1, Hq, Lq, M] from [1, Hkv, Lk, M]: a mean of them above 0."""
    mask = row.visible.mask
    if mask is not None and mask.dtype != torch.bool:
        mask = mask != -torch.inf
    visible = replace(row.visible, mask=mask)
    return attend(replace(row, v=marks.to(row.v.dtype), visible=visible, scale=0.0, softcap=None), False).output > 0
