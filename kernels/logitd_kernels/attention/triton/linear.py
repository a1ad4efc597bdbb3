"""Two kernels: what a segment of keys sums to, and what queries read of such sums and of their own segment."""

# ruff: noqa: ANN001, ANN201, ANN202 (what a jit function takes has no Python type)
# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

CHUNK = tl.constexpr(64)  # keys, or queries, that one product takes


@triton.jit
def _tile(ptr, rows, cols, n_rows, n_cols, row_stride, col_stride):
    """Load some rows and columns of a matrix as float32, 0 beyond its ends: [rows, cols]."""
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None].to(tl.int64) * row_stride + cols[None, :].to(tl.int64) * col_stride
    return tl.load(ptr + offsets, inside, 0.0).to(tl.float32)


@triton.jit
def state_kernel(
    phi_k_ptr,
    v_ptr,
    state_ptr,
    sum_ptr,
    k_stride_n,
    k_stride_l,
    k_stride_m,
    v_stride_n,
    v_stride_l,
    v_stride_d,
    n_keys,
    n_features,
    n_dims,
    n_segments,
    SEGMENT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Sum φ(k) vᵀ and φ(k) over a segment: grid (heads · segments, blocks of features, blocks of dims).

    Writes state [heads, segments, m, dv] and sum [heads, segments, m], contiguous.
    """
    place = tl.program_id(0).to(tl.int64)  # place · m · dv may pass 2**31
    head, segment = place // n_segments, place % n_segments
    features = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    state = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, SEGMENT, CHUNK):
        keys = segment * SEGMENT + start + tl.arange(0, CHUNK)
        k = _tile(phi_k_ptr + head * k_stride_n, keys, features, n_keys, n_features, k_stride_l, k_stride_m)
        v = _tile(v_ptr + head * v_stride_n, keys, dims, n_keys, n_dims, v_stride_l, v_stride_d)
        state += tl.dot(tl.trans(k), v, input_precision="tf32x3")
        total += tl.sum(k, axis=0)
    inside = (features[:, None] < n_features) & (dims[None, :] < n_dims)
    tl.store(state_ptr + (place * n_features + features[:, None]) * n_dims + dims[None, :], state, inside)
    if tl.program_id(2) == 0:
        tl.store(sum_ptr + place * n_features + features, total, features < n_features)


@triton.jit
def read_kernel(
    phi_q_ptr,
    phi_k_ptr,
    v_ptr,
    state_ptr,
    sum_ptr,
    numerator_ptr,
    denominator_ptr,
    q_stride_n,
    q_stride_l,
    q_stride_m,
    k_stride_n,
    k_stride_l,
    k_stride_m,
    v_stride_n,
    v_stride_l,
    v_stride_d,
    n_queries,
    n_features,
    n_dims,
    n_chunks,
    n_segments,
    SEGMENT: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Let a chunk of queries read: grid (heads · chunks of queries, blocks of dims).

    State [heads, segments, m, dv] and sum [heads, segments, m] hold what comes before each segment where causal, and
    one segment that is everything where not.
    """
    place = tl.program_id(0).to(tl.int64)
    head, chunk = place // n_chunks, place % n_chunks
    dims = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    queries = chunk * CHUNK + tl.arange(0, CHUNK)
    segment = chunk * CHUNK // SEGMENT if CAUSAL else 0
    before = head * n_segments + segment
    phi_q_ptr += head * q_stride_n
    phi_k_ptr += head * k_stride_n
    numerator = tl.zeros([CHUNK, BLOCK_D], tl.float32)
    denominator = tl.zeros([CHUNK], tl.float32)
    for first in range(0, n_features, BLOCK_M):
        features = first + tl.arange(0, BLOCK_M)
        q = _tile(phi_q_ptr, queries, features, n_queries, n_features, q_stride_l, q_stride_m)
        state = _tile(state_ptr + before * n_features * n_dims, features, dims, n_features, n_dims, n_dims, 1)
        total = tl.load(sum_ptr + before * n_features + features, features < n_features, 0.0)
        numerator += tl.dot(q, state, input_precision="tf32x3")
        denominator += tl.sum(q * total[None, :], axis=1)
    if CAUSAL:
        for start in range(segment * SEGMENT, (chunk + 1) * CHUNK, CHUNK):
            keys = start + tl.arange(0, CHUNK)
            weights = tl.zeros([CHUNK, CHUNK], tl.float32)
            for first in range(0, n_features, BLOCK_M):
                features = first + tl.arange(0, BLOCK_M)
                q = _tile(phi_q_ptr, queries, features, n_queries, n_features, q_stride_l, q_stride_m)
                k = _tile(phi_k_ptr, keys, features, n_queries, n_features, k_stride_l, k_stride_m)
                weights += tl.dot(q, tl.trans(k), input_precision="tf32x3")
            weights = tl.where(keys[None, :] <= queries[:, None], weights, 0.0)
            v = _tile(v_ptr + head * v_stride_n, keys, dims, n_queries, n_dims, v_stride_l, v_stride_d)
            numerator += tl.dot(weights, v, input_precision="tf32x3")
            denominator += tl.sum(weights, axis=1)
    row = head * n_queries + queries
    inside = queries < n_queries
    tl.store(
        numerator_ptr + row[:, None] * n_dims + dims[None, :], numerator, inside[:, None] & (dims[None, :] < n_dims)
    )
    if tl.program_id(1) == 0:
        tl.store(denominator_ptr + row, denominator, inside)
