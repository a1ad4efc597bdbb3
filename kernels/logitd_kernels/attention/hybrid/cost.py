"""What hybrid attention costs: multiply-adds beside exact attention's, and bytes beside a cache of keys and values."""

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.hybrid.head import BLOCK, Parts
from logitd_kernels.attention.hybrid.heavy import OUTLYING_KEYS, OUTLYING_QUERIES
from logitd_kernels.attention.moment.calibrate import sample_size
from logitd_kernels.attention.sequences import dtype_of


def cost_of(call: Call, rank: int, parts: Parts, calibrated: bool) -> float:
    """Count multiply-adds over Lq·Lk·(d + dv): exact parts, sums, reads, far states, exact rows, covariances."""
    d, columns, pairs = call.q.shape[3], call.v.shape[3] + 1, rank * (rank + 1) // 2
    exact = call.queries * call.keys * (d + call.v.shape[3])
    if not exact:
        return 0.0
    window = parts.window(call.visible.causal)
    near = min(window.blocks * BLOCK, call.keys) + _chosen(call, parts)
    size = (1 + d + pairs) * columns
    sides = 1 if window.causal else 2  # before and behind, each a running sum over blocks
    key = d * (rank + 1) + pairs + size + sides * size // BLOCK
    query = near * (d + columns) + 2 * d * rank + pairs + size + (sides - 1) * size // BLOCK
    work = call.keys * key + call.queries * query + _exact_rows(call, rank, parts)
    if calibrated:
        work += (min(call.keys, sample_size(d)) + min(call.queries, sample_size(d))) * d * d
    return work / exact


def state_bytes(call: Call, rank: int, parts: Parts) -> int:
    """Count what answers the next query of a head: its state, and the keys and values that stay exact."""
    d, dim_v = call.q.shape[3], call.v.shape[3]
    kept = parts.window(call.visible.causal).blocks * BLOCK + _chosen(call, parts)
    numbers = (1 + d + rank * (rank + 1) // 2) * (dim_v + 1) + kept * (d + dim_v)
    return numbers * dtype_of(call).itemsize


def _chosen(call: Call, parts: Parts) -> int:
    """Return how many heavy keys there are at most."""
    return parts.sinks if call.visible.causal else parts.sinks + parts.heavy + OUTLYING_KEYS


def _exact_rows(call: Call, rank: int, parts: Parts) -> int:
    """Count the exact rows: fitted to, decided on, and outliers; none in a causal call."""
    if call.visible.causal:
        return 0
    d, dim_v = call.q.shape[3], call.v.shape[3]
    rows = min(parts.rows, call.queries)
    outlying = min(OUTLYING_QUERIES, call.queries // BLOCK)
    near = parts.window(False).blocks * BLOCK + _chosen(call, parts)
    read = near * (d + dim_v) + 3 * (1 + d + rank * (rank + 1) // 2) * (dim_v + 1)
    return (rows + outlying) * call.keys * (d + dim_v) + rows * read
