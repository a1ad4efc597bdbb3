"""Coordinates in which a head's logits are low-rank: centred, balanced, and rotated to where they vary most."""

from dataclasses import dataclass

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.parts import SCORE_LIMIT, largest
from logitd_kernels.attention.sequences import dtype_of, sequences
from logitd_kernels.errors import ParameterError, ShapeError

RIDGE = 1e-4  # of the mean variance: keeps few tokens from making a covariance singular
SAMPLE = 4  # tokens for each of d dimensions are enough to estimate their covariance
CAUSAL_SAMPLE = 256  # a causal call is calibrated on its first tokens alone: later ones must not reach earlier answers


@dataclass(frozen=True)
class Basis:
    """The coordinates of some heads. Queries are meant times the scale of the call: a logit is q·k.

        q·(k − k̄) = (q − c)·(k − k̄) + ω,  ω = c·(k − k̄)            exact, for any c and k̄
        (q − c)·(k − k̄) = y_q·y_k + what the other d − r directions add,  y_q = Q(q − c),  y_k = K(k − k̄)

    In these r directions queries and keys have the same diagonal covariance, the largest entries first.

    Attributes:
        key_centre: k̄, [..., d].
        query_centre: c, [..., d].
        key_map: K, [..., r, d].
        query_map: Q, [..., r, d].
        spectrum: [..., d], the standard deviations that all directions add to the logits, descending.
    """

    key_centre: torch.Tensor
    query_centre: torch.Tensor
    key_map: torch.Tensor
    query_map: torch.Tensor
    spectrum: torch.Tensor

    @property
    def rank(self) -> int:
        """R, how many directions have a quadratic part."""
        return self.key_map.shape[-2]

    @property
    def dim(self) -> int:
        """D, the dim of queries and keys."""
        return self.key_map.shape[-1]

    def __getitem__(self, index: int) -> "Basis":
        return Basis(**{name: tensor[index] for name, tensor in self.export().items()})

    def to(self, dtype: torch.dtype) -> "Basis":
        """Return the basis in another dtype."""
        return Basis(**{name: tensor.to(dtype) for name, tensor in self.export().items()})

    def export(self) -> dict[str, torch.Tensor]:
        """Return the tensors by name; `Basis(**tensors)` takes them back."""
        return dict(vars(self))


@torch.no_grad()
def calibrate(call: Call, rank: int) -> Basis:
    """Fit coordinates to every head of every sequence of a call.

    Only what its length leaves of a sequence is read. A causal call is calibrated on its first 256 queries and keys, so
    that its answers depend on later ones nowhere but within these.

    Args:
        call: queries, keys and scale; values and masks are not read.
        rank: directions with a quadratic part, at least 1; more than d are d.
    Returns:
        A basis [B, Hq, ...], float32 (float64 for float64).
    Raises:
        ParameterError: a rank that is none, or a scale as `check_magnitudes` has it.
    """
    check_rank(rank)
    check_magnitudes(call)
    first = CAUSAL_SAMPLE if call.visible.causal else None
    found = [
        fit_basis(_sampled(sequence.q[:, :first]) * call.scaling, sequence.k[:, :first], rank)
        for sequence in sequences(call)
    ]
    if not found:
        nothing = torch.zeros(call.heads, 0, call.q.shape[3], dtype=dtype_of(call))
        return Basis(**{name: x[None][:0] for name, x in fit_basis(nothing, nothing, rank).export().items()})
    return Basis(**{name: torch.stack([getattr(one, name) for one in found]) for name in found[0].export()})


def fit_basis(q: torch.Tensor, k: torch.Tensor, rank: int) -> Basis:
    """Fit coordinates to samples of queries and keys, some heads at once.

        C_q = LLᵀ,  Lᵀ C_k L = W σ² Wᵀ,  Q = σ^½ Wᵀ L⁻¹,  K = σ^-½ Wᵀ Lᵀ

    so that Q C_q Qᵀ = K C_k Kᵀ = σ: M and U of the symmetric form without its square roots. Covariances get a ridge of
    1e-4 of their mean diagonal; all this is float64.

    Args:
        q: [N, R, d], times the scale.
        k: [N, n, d], same dtype.
        rank: at least 1.
    Returns:
        A basis [N, ...] in the dtype of q. Without queries or keys their centre is 0.
    Raises:
        ParameterError: `scale`, where float64 does not hold the covariances.
    Source: the balancing of two covariances is Moore 1981's, "Principal component analysis in linear systems".
    """
    rank = min(rank, q.shape[2])
    query_centre, query_covariance = _moments(q)
    key_centre, key_covariance = _moments(k)
    if not (query_covariance.isfinite().all() and key_covariance.isfinite().all()):
        raise ParameterError("scale", "the covariance of queries times the scale, or of keys, is not finite")
    factor = torch.linalg.cholesky(query_covariance)
    balanced = factor.mT @ key_covariance @ factor
    if not balanced.isfinite().all():
        raise ParameterError("scale", "the variance of scale · q·k is not finite")
    values, vectors = torch.linalg.eigh(balanced)
    values, vectors = values.flip(-1).clamp_min(0), vectors.flip(-1)
    top = vectors[..., :rank]
    root = torch.maximum(values, 1e-14 * values[..., :1])[..., None, :rank] ** 0.25  # σ^½, above what eigh leaves of 0
    query_map = torch.linalg.solve_triangular(factor.mT, top, upper=True) * root
    key_map = factor @ top / root
    return Basis(key_centre, query_centre, key_map.mT, query_map.mT, values.sqrt()).to(q.dtype)


def basis_of(call: Call, rank: int, basis: Basis | None) -> Basis:
    """Return a basis for every head of a call: calibrated on it, or the given one, [Hq, ...] or [B, Hq, ...].

    Raises:
        ShapeError: a basis for other heads or another dim.
        ParameterError: as `calibrate`.
    """
    if basis is None:
        return calibrate(call, rank)
    check_magnitudes(call)
    wanted = (call.batch, call.heads, basis.rank, call.q.shape[3])
    shape = tuple(basis.key_map.shape)
    if shape not in (wanted, wanted[1:]):
        raise ShapeError("basis", f"expected a key_map of shape {list(wanted[1:])}, got {list(shape)}")
    basis = basis.to(dtype_of(call))
    if shape == wanted:
        return basis
    return Basis(**{name: x.expand(call.batch, *x.shape) for name, x in basis.export().items()})


def sample_size(dim: int) -> int:
    """Return how many tokens a basis is fitted to: the middles of so many equal stretches. A power of 2, ≥ 256."""
    return 1 << max(8, (SAMPLE * dim - 1).bit_length())


def calibrated_rows(queries: int, dim: int, causal: bool) -> torch.Tensor:
    """Return the queries of a sequence that `calibrate` looks at, ascending: [≤ sample_size] int64.

    They come out better than others, so an audit leaves them out.
    """
    rows = min(queries, CAUSAL_SAMPLE) if causal else queries
    return _middles(rows, min(rows, sample_size(dim)))


def check_magnitudes(call: Call) -> None:
    """Refuse a call whose scaled queries, keys or logits pass what second order can compute with.

    That is 1e38 in float32; in float64 1e150, so that their squares are finite. Padding is not looked at.

    Raises:
        ParameterError: `scale`.
    """
    limit = SCORE_LIMIT if dtype_of(call) == torch.float32 else 1e150
    for sequence in sequences(call):
        q, k = largest(sequence.q) * abs(call.scaling), largest(sequence.k)
        if not max(q, k, q * k * call.q.shape[3]) < limit:
            raise ParameterError("scale", f"q·scale, k or scale · q·k passes {limit:.0e}; use exact attention")


def check_rank(rank: int) -> None:
    """Refuse a rank that is none.

    Raises:
        ParameterError: not an integer of at least 1.
    """
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ParameterError("rank", f"must be an integer of at least 1, got {rank!r}")


def _middles(rows: int, count: int) -> torch.Tensor:
    return (2 * torch.arange(count) + 1) * rows // (2 * max(count, 1))


def _sampled(x: torch.Tensor) -> torch.Tensor:
    """Return the rows that a basis is fitted to: [N, R, d] -> [N, ≤ `sample_size`, d], as they are if that few."""
    count = min(x.shape[1], sample_size(x.shape[2]))
    return x if count == x.shape[1] else x[:, _middles(x.shape[1], count)]


def _moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean [N, d] and ridged covariance [N, d, d] of a sample of rows, float64."""
    taken = _sampled(x).double()
    heads, count, dim = taken.shape
    centre = taken.mean(1) if count else x.new_zeros(heads, dim, dtype=torch.float64)
    taken = taken - centre[:, None]
    covariance = taken.mT @ taken / max(count, 1)
    ridge = RIDGE * covariance.diagonal(dim1=1, dim2=2).mean(1) + 1e-24
    return centre, covariance + ridge[:, None, None] * torch.eye(dim, dtype=torch.float64)
