"""Which queries are audited: one of each stretch, drawn, so that no period of a sequence escapes; and the outlying."""

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.moment.calibrate import calibrated_rows
from logitd_kernels.attention.parts import largest
from logitd_kernels.attention.sequences import dtype_of

ROWS = 64
OUTLYING = 4
SQUARE_LIMIT = 1e15  # float32 holds the sum of the squares of what is smaller
_SHARE = 64  # outliers are at most one in so many


def audit_rows(
    queries: int, n: int = ROWS, seed: int = 0, avoided: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows to fit on and rows to report on, each ascending, no row in both: [≤ n / 2] and [≤ n] int64.

    Reported is one row of each of n equal stretches, all rows where there are no more; fitted is one of each of n / 2,
    as far as one is left. Rows are drawn: at fixed places, an input of the right period would show its best rows alone.

    Args:
        queries: how many rows there are.
        n: how many to report on.
        seed: of the drawing; the same for every head and batch row.
        avoided: [queries] bool, rows that are taken only where a stretch has no others; None for none.
    """
    generator = torch.Generator().manual_seed(seed)
    free = torch.ones(queries, dtype=torch.bool)
    count = min(n, queries)
    wanted = free if avoided is None else ~avoided
    report = _one_of_each(count, generator, [wanted, free])
    free[report] = False
    return _one_of_each(count // 2, generator, [wanted & free, free]), report


def _one_of_each(count: int, generator: torch.Generator, candidates: list[torch.Tensor]) -> torch.Tensor:
    """Draw a row of each of `count` stretches, from the first of some sets, [queries] bool, that has one there."""
    edges = torch.arange(count + 1) * len(candidates[0]) // max(count, 1)
    share = torch.rand(count, generator=generator, dtype=torch.float64)
    chosen = torch.full((count,), -1)
    for rows in candidates:
        before = torch.nn.functional.pad(rows.cumsum(0), (1, 0))[edges]
        place = before[:-1] + (share * before.diff()).long()
        open_ = (chosen < 0) & (before.diff() > 0)
        chosen[open_] = rows.nonzero()[place[open_], 0]
    return chosen[chosen >= 0]


def seeing(row: Call) -> range:
    """Return the queries that see a key, in a call as `batch_row` gives it; masks are not looked at."""
    if not row.keys:
        return range(0)
    first = max(0, -int(row.offsets()[0])) if row.visible.causal else 0
    return range(min(first, row.queries), row.queries)


def rows_of(row: Call, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `audit_rows` of the queries that see a key, in a call as `batch_row` gives it.

    Queries that a basis is calibrated on come out better than others, and are avoided.
    """
    live = seeing(row)
    avoided = torch.zeros(row.queries, dtype=torch.bool)
    avoided[calibrated_rows(row.queries, row.q.shape[3], row.visible.causal)] = True
    fit, report = audit_rows(len(live), n, seed, avoided[live.start : live.stop])
    return fit + live.start, report + live.start


def outlying_rows(row: Call, head: int) -> torch.Tensor:
    """Return the few queries of a head that are farthest from their centre, ascending: their logits differ the most.

    One query that looks for one key is seldom among drawn rows.
    """
    live = seeing(row)
    q = row.q[0, head, live.start : live.stop]
    q = q.to(torch.float64 if largest(q) > SQUARE_LIMIT else dtype_of(row))
    norms: torch.Tensor = torch.linalg.vector_norm(q - q.mean(0), dim=1)
    return norms.topk(min(OUTLYING, len(live) // _SHARE)).indices.sort().values + live.start
