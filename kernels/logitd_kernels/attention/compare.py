"""Methods beside each other on one call: how wrong each is, head by head, and what it costs."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from logitd_kernels.attention.audit import Audit, Yardstick
from logitd_kernels.attention.call import Approximate, Call, Options
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.exact_rows import exact_rows
from logitd_kernels.attention.features.registry import METHODS as FEATURE_MAPS
from logitd_kernels.attention.methods import APPROXIMATE
from logitd_kernels.attention.sampling import ROWS
from logitd_kernels.errors import ParameterError

_KEYS = 64  # whose weights are ranked


@dataclass(frozen=True)
class Trial:
    """One method on the call.

    Attributes:
        method: `exact` or one of `methods.APPROXIMATE`.
        feature_dim: features a head; None where the method has none to choose.
        seconds: of the whole call.
        cost: multiply-adds over those of exact attention.
        state_bytes: what a head keeps in place of its keys and values; None for exact.
        audit: the error of each head and the like.
        rank_correlation: [B, Hq] Spearman's ρ between the weights of 64 keys and the exact ones, mean of audited rows;
            0 where weights are all equal, NaN where there are no keys or queries.
        nonpositive_rows: [B, Hq] queries whose normaliser failed.
    """

    method: str
    feature_dim: int | None
    seconds: float
    cost: float
    state_bytes: int | None
    audit: Audit
    rank_correlation: torch.Tensor
    nonpositive_rows: torch.Tensor


@dataclass(frozen=True)
class Contender:
    """A method to be tried, with its number of features where it has one."""

    method: str
    feature_dim: int | None = None


def contenders(call: Call, methods: Sequence[str] | None, feature_dims: Sequence[int] | None) -> list[Contender]:
    """Return what to try: exact first; maps with random features at 2, 4 and 8 · d unless told otherwise.

    Raises:
        ParameterError: an unknown method.
    """
    names = list(APPROXIMATE) if methods is None else [name for name in methods if name != "exact"]
    for name in names:
        if name not in APPROXIMATE:
            raise ParameterError("methods", f"must be among exact, {', '.join(APPROXIMATE)}, got {name[:40]!r}")
    dims = [factor * call.q.shape[3] for factor in (2, 4, 8)] if feature_dims is None else feature_dims
    found = [Contender("exact")]
    for name in dict.fromkeys(names):
        sized = name in FEATURE_MAPS and "feature_dim" in FEATURE_MAPS[name].features
        found += [Contender(name, dim) for dim in dims] if sized else [Contender(name)]
    return found


@torch.no_grad()
def trials(
    call: Call, tried: Sequence[Contender], options: Options, rows: int = ROWS, ranks: bool = True
) -> Iterator[Trial]:
    """Try each contender in turn; one that cannot represent the call is left out.

    Args:
        call: what to attend.
        tried: as `contenders` gives them.
        options: all but `feature_dim`.
        rows: audited rows of each sequence.
        ranks: whether to find rank correlations, which takes each method a second time.
    Raises:
        NonFiniteTensor: q, k or v holds NaN or an infinity.
        ParameterError: an impossible number of features.
    """
    call.check_finite()
    yardstick, ranked = Yardstick.of(call, rows, options.seed), _RankedWeights.of(call, rows if ranks else 0)
    for contender in tried:
        own = replace(options, feature_dim=contender.feature_dim)
        run = _runner(contender.method, own)
        began = time.perf_counter()
        try:
            found = run(call)
        except ParameterError as error:
            if error.field == "feature_dim":
                raise
            continue
        seconds = time.perf_counter() - began
        yield Trial(
            contender.method,
            contender.feature_dim,
            seconds,
            found.cost,
            None if contender.method == "exact" else found.state_bytes,
            yardstick.audit(found.output),
            ranked.correlation(run),
            found.nonpositive_rows,
        )


def _runner(method: str, options: Options) -> Callable[[Call], Approximate]:
    def exactly(call: Call) -> Approximate:
        none = torch.zeros(call.batch, call.heads, dtype=torch.int64)
        return Approximate(exact(call, statistics=False).output, none, 0, 1.0)

    return exactly if method == "exact" else lambda call: APPROXIMATE[method](call, options)


@dataclass(frozen=True)
class _RankedWeights:
    """The exact weights of a few keys: a call whose values are unit vectors of those keys answers with its weights."""

    probe: Call
    rows: torch.Tensor
    ranks: torch.Tensor  # [B, Hq, R, keys]

    @classmethod
    def of(cls, call: Call, rows: int) -> "_RankedWeights":
        keys = torch.arange(min(_KEYS, call.keys)) * call.keys // max(1, min(_KEYS, call.keys))
        units = torch.zeros(*call.k.shape[:3], max(1, len(keys)), dtype=call.v.dtype)
        units[:, :, keys, torch.arange(len(keys))] = 1
        probe = replace(call, v=units)
        rows = min(rows, call.queries) if call.keys else 0
        wanted = torch.arange(rows) * call.queries // max(1, rows)
        return cls(probe, wanted, _centred_ranks(exact_rows(probe, wanted).output))

    def correlation(self, run: Callable[[Call], Approximate]) -> torch.Tensor:
        """Return Spearman's ρ of a method's weights and the exact ones, [B, Hq]."""
        if not self.ranks.numel():
            return torch.full(self.probe.q.shape[:2], torch.nan)
        own = _centred_ranks(run(self.probe).output[:, :, self.rows])
        return torch.nan_to_num(torch.linalg.vecdot(own, self.ranks)).mean(2)


def _centred_ranks(x: torch.Tensor) -> torch.Tensor:
    """Return ranks along the last dim, centred and of unit norm; zeros where all are equal."""
    ranks = x.double().argsort(-1).argsort(-1).double()
    ranks = ranks - ranks.mean(-1, keepdim=True)
    ranks = torch.where((x == x[..., :1]).all(-1, keepdim=True), 0, ranks)
    return torch.nn.functional.normalize(ranks, dim=-1)
