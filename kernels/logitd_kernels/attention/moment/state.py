"""The moment state: weighted sums over keys of 1, k, and the products of its quadratic directions, times [v, 1]."""

import torch

from logitd_kernels.attention.moment import compiled
from logitd_kernels.attention.moment.calibrate import Basis
from logitd_kernels.attention.moment.read import Expansion, Reading, pairs, quotient
from logitd_kernels.errors import ShapeError

TILE = 512  # keys whose products are formed at once: these stay in cache


class MomentState:
    """What moment attention keeps of some heads' keys: (1 + d + r (r + 1) / 2) (dv + 1) numbers a head.

    Attributes:
        basis: the coordinates, [N, ...]; they set the dtype, float32 or float64.
        tokens: how many keys the state holds.
        log_scale: ω*, [N], the largest ω of a key so far, −inf before the first.
        sums: [N, m, dv + 1], Σ e^(ω − ω*) φ [v, 1]ᵀ with φ = 1, the d of k − k̄, and `pairs` of y_k, those of different
            directions twice. So Z, S1 and S2 are its last column, V0, V1 and V2 the rest.

    Z ≥ 1 after the first key.
    """

    def __init__(self, basis: Basis, value_dim: int) -> None:
        self.basis = basis
        heads, dtype = basis.key_centre.shape[0], basis.key_centre.dtype
        self.tokens = 0
        self.log_scale = torch.full((heads,), -torch.inf, dtype=dtype)
        self.sums = torch.zeros(heads, size_of(basis), value_dim + 1, dtype=dtype)

    @property
    def bytes(self) -> int:
        """Of all heads, without the basis."""
        return self.sums.nbytes + self.log_scale.nbytes

    @torch.no_grad()
    def append(self, k: torch.Tensor, v: torch.Tensor) -> None:
        """Take in T keys.

        Args:
            k: [N, T, d], not scaled.
            v: [N, T, dv].
        Raises:
            ShapeError: other heads, dims or lengths than the state's.
        """
        heads, _, columns = self.sums.shape
        if k.ndim != 3 or k.shape[0] != heads or k.shape[2] != self.basis.dim:
            raise ShapeError("k", f"expected [{heads}, T, {self.basis.dim}], got {list(k.shape)}")
        if v.shape != (heads, k.shape[1], columns - 1):
            raise ShapeError("v", f"expected {[heads, k.shape[1], columns - 1]}, got {list(v.shape)}")
        self.tokens += k.shape[1]
        if compiled.serves(self.sums.dtype):
            return compiled.append(k, v, self.basis, self.sums, self.log_scale)
        for start in range(0, k.shape[1], TILE):
            self._append(k[:, start : start + TILE].to(self.sums), v[:, start : start + TILE].to(self.sums))

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> None:
        keys = k - self.basis.key_centre[:, None]
        weight = log_weights(self.basis, keys)
        scale = torch.maximum(self.log_scale, weight.amax(1))
        self.sums *= torch.exp(self.log_scale - scale)[:, None, None]
        self.log_scale = scale
        weighted = weighted_values(v, torch.exp(weight - scale[:, None]))
        add_moments(self.sums, keys, self.basis.key_map @ keys.mT, weighted)

    @torch.no_grad()
    def read(self, q: torch.Tensor) -> Reading:
        """Attend to every key so far.

        Args:
            q: [N, n, d], times the scale of the call.
        Raises:
            ShapeError: other heads or another dim than the state's.
        """
        if q.ndim != 3 or q.shape[0] != self.sums.shape[0] or q.shape[2] != self.basis.dim:
            raise ShapeError("q", f"expected [{self.sums.shape[0]}, n, {self.basis.dim}], got {list(q.shape)}")
        x = q.to(self.sums) - self.basis.query_centre[:, None]
        return Expansion(self.sums, self.log_scale, self.basis.key_map, x, self.basis.query_map @ x.mT).reading()

    @torch.no_grad()
    def answer(self, q: torch.Tensor, scale: float, out: torch.Tensor) -> torch.Tensor:
        """Attend to every key so far.

        Args:
            q: [N, n, d], not scaled.
            scale: of the call.
            out: [N, n, dv], filled in; every head contiguous.
        Returns:
            Which queries have no positive normaliser, [N, n] bool: their answer is 0.
        """
        if compiled.serves(self.sums.dtype):
            return compiled.read(q, scale, self.basis, self.sums, self.log_scale, out)
        bad = torch.empty(out.shape[:2], dtype=torch.bool)
        for start in range(0, q.shape[1], TILE):
            tile = slice(start, start + TILE)
            reading = self.read(q[:, tile] * scale)
            bad[:, tile] = quotient(reading.numerator, reading.denominator, out[:, tile])
        return bad

    def export(self) -> dict[str, torch.Tensor]:
        """Return the state as tensors, those of its basis under `basis.`; `restore` continues on the same bits."""
        basis = {f"basis.{name}": tensor.clone() for name, tensor in self.basis.export().items()}
        tokens = torch.tensor(self.tokens)
        return basis | {"tokens": tokens, "log_scale": self.log_scale.clone(), "sums": self.sums.clone()}

    @classmethod
    def restore(cls, tensors: dict[str, torch.Tensor]) -> "MomentState":
        """Take back what `export` gave.

        Raises:
            ShapeError: naming a tensor that is missing or does not fit the others.
        """
        state = cls(_restored_basis(tensors), _tensor(tensors, "sums", 3).shape[2] - 1)
        for name in ("log_scale", "sums"):
            held, given = getattr(state, name), _tensor(tensors, name)
            if given.shape != held.shape or given.dtype != held.dtype:
                wanted = f"{list(held.shape)} {held.dtype}"
                raise ShapeError(name, f"expected {wanted}, got {list(given.shape)} {given.dtype}")
            setattr(state, name, given.clone())
        state.tokens = int(_tensor(tensors, "tokens", 0))
        return state


def size_of(basis: Basis) -> int:
    """Return m, the rows of a state's sums."""
    return 1 + basis.dim + basis.rank * (basis.rank + 1) // 2


def log_weights(basis: Basis, keys: torch.Tensor) -> torch.Tensor:
    """Return ω = c·(k − k̄) of centred keys: [N, T, d] -> [N, T]."""
    return (keys @ basis.query_centre[..., None])[..., 0]


def weighted_values(v: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return w [v, 1]: [N, T, dv], [N, T] -> [N, T, dv + 1]."""
    weighted = v.new_empty(*v.shape[:-1], v.shape[-1] + 1)
    torch.mul(v, weights[..., None], out=weighted[..., :-1])
    weighted[..., -1] = weights
    return weighted


def add_moments(
    sums: torch.Tensor, keys: torch.Tensor, y: torch.Tensor, weighted: torch.Tensor, fresh: bool = False
) -> None:
    """Add Σ φ(k) w [v, 1]ᵀ to sums, in place: the layout of a state, in one spot.

    Args:
        sums: [N, m, dv + 1].
        keys: [N, T, d], centred.
        y: [N, r, T], their quadratic directions.
        weighted: [N, T, dv + 1].
        fresh: whether sums hold nothing yet, not even zeros.
    """
    beta = 0.0 if fresh else 1.0
    dim, rank = keys.shape[2], y.shape[1]
    products = pairs(y)
    products[:, rank:] *= 2
    first = weighted.sum(1)
    sums[:, 0] = first if fresh else sums[:, 0] + first
    sums[:, 1 : 1 + dim].baddbmm_(keys.mT, weighted, beta=beta)
    sums[:, 1 + dim :].baddbmm_(products, weighted, beta=beta)


def _restored_basis(tensors: dict[str, torch.Tensor]) -> Basis:
    basis = Basis(**{name: _tensor(tensors, f"basis.{name}") for name in Basis.__dataclass_fields__})
    heads, rank, dim = _tensor(tensors, "basis.key_map", 3).shape
    shapes = {"key_centre": (heads, dim), "query_centre": (heads, dim), "key_map": (heads, rank, dim)}
    shapes |= {"query_map": (heads, rank, dim), "spectrum": (heads, dim)}
    for name, tensor in basis.export().items():
        if tensor.shape != shapes[name] or tensor.dtype != basis.key_map.dtype:
            raise ShapeError(f"basis.{name}", f"expected {list(shapes[name])}, got {list(tensor.shape)} {tensor.dtype}")
    return basis


def _tensor(tensors: dict[str, torch.Tensor], name: str, dims: int | None = None) -> torch.Tensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise ShapeError(name, "expected this tensor, got none")
    if dims is not None and tensor.ndim != dims:
        raise ShapeError(name, f"expected {dims} dims, got shape {list(tensor.shape)}")
    return tensor
