"""What a call will take, before anything is allocated: upper bounds of work and memory, from shapes alone."""

from dataclasses import dataclass

from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.features.registry import METHODS as FEATURE_MAPS

_CALIBRATION = 40  # multiply-adds for each of d³: covariances, a Cholesky factor and eigenvectors, in float64
_TILE = 512
_NUMBER = 4  # bytes


@dataclass(frozen=True)
class Estimate:
    """An upper bound, within a small factor.

    Attributes:
        multiply_adds: of the whole call.
        memory: bytes beyond input and output.
    """

    multiply_adds: int
    memory: int

    def __add__(self, other: "Estimate") -> "Estimate":
        """Return what both take, one after the other."""
        return Estimate(self.multiply_adds + other.multiply_adds, max(self.memory, other.memory))


def estimate(call: Call, mode: str, options: Options, rows: int) -> Estimate:
    """Estimate a call by one mode, neither `auto` nor `linear`: its audit, and heads that may be exact, included.

    Args:
        call: shapes are read.
        mode: how it is attended.
        options: of the method.
        rows: audited rows of each sequence.
    """
    d, dv = call.q.shape[3], call.v.shape[3]
    heads = call.batch * call.heads
    exact = heads * call.queries * call.keys * (d + dv)
    audited = heads * min(2 * rows, call.queries) * call.keys * (d + dv)
    scores = min(2 * rows, call.queries) * call.keys * 4 * _NUMBER
    base = Estimate(audited, scores + _TILE * _TILE * 4 * _NUMBER)
    if mode in ("exact", "exact_bf16", "mean_v"):
        return base + Estimate(exact, 2 * call.keys * (d + dv) * _NUMBER)
    return base + Estimate(exact, 0) + _linear(call, mode, options)  # heads that err are computed again exactly


def _linear(call: Call, mode: str, options: Options) -> Estimate:
    d, columns = call.q.shape[3], call.v.shape[3] + 1
    heads, tokens = call.batch * call.heads, call.queries + call.keys
    second_order = mode in ("moment", "hybrid")
    features = _features(mode, d, options)
    work = heads * tokens * features * (d + columns)
    if second_order or (mode in FEATURE_MAPS and FEATURE_MAPS[mode].adapts):
        work += heads * _CALIBRATION * d**3
    states = heads if not second_order else call.heads
    if mode == "hybrid":
        states = max(states, 2 * (call.keys // 64 + 64))  # before and behind every block of one head
    memory = states * features * columns * _NUMBER + 2 * call.heads * _TILE * features * _NUMBER
    return Estimate(work + features * d * d, memory)


def _features(mode: str, d: int, options: Options) -> int:
    known = {"taylor2": _second_order(d, d), "elu": d, "cosformer": 2 * d, "nystrom": options.feature_dim or 64}
    if mode in known:
        return known[mode]
    if mode in FEATURE_MAPS:
        return options.feature_dim or 4 * d
    return _second_order(d, min(options.rank, d))


def _second_order(d: int, rank: int) -> int:
    return 1 + d + rank * (rank + 1) // 2
