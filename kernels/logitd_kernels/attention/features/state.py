"""The recurrent state of linear attention: Σ φ(k)·[v, 1] over the keys so far, of one sequence.

Every feature has a log-scale of its own, the largest exponent that a key has had in it. So the feature that is largest
for a query at these scales has a key of weight 1: the normaliser of positive exponentials is at least 1, whatever the
norms.
"""

import torch

from logitd_kernels.attention.features.feature import Features, Setting, primed
from logitd_kernels.attention.features.registry import method_named
from logitd_kernels.errors import ShapeError

TILE = 256  # vectors lifted at once, so that their features stay in cache
CHUNK = 128
_GAP = 60.0  # a row that stands at e^-60 of its scale is far from where float32 ends, and has all its digits

Read = tuple[torch.Tensor, torch.Tensor]


class FeatureState:
    """What linear attention keeps of a sequence: m·(dv + 1) numbers a head, however long it is.

    Attributes:
        method: a name of `METHODS`.
        setting: what its map was fitted to.
        map: the map.
        tokens: how many keys the state holds.
        pivot: [H, 1, width], the log-scale of each feature, −inf before the first key.
        sums: [H, m, dv + 1], Σ φ(k)·e^(−pivot)·[v, 1].

    Raises:
        ParameterError: an unknown method, a setting that its map cannot be fitted to.
    """

    def __init__(self, method: str, setting: Setting, heads: int, value_dim: int) -> None:
        self.method, self.setting = method, setting
        self.map = method_named(method).fit(setting)
        self.tokens = 0
        self.pivot = torch.full((heads, 1, self.map.width), -torch.inf, dtype=setting.dtype)
        self.sums = torch.zeros(heads, self.map.size, value_dim + 1, dtype=setting.dtype)

    @property
    def bytes(self) -> int:
        """Of all heads; projections are shared by all states of a seed and not counted."""
        return self.sums.nbytes + self.pivot.nbytes

    def append(self, k: torch.Tensor, v: torch.Tensor) -> None:
        """Take in T keys, [H, T, d], and their values, [H, T, dv]."""
        self._check(k, v)
        for start in range(0, k.shape[1], TILE):
            keys, values = self._keys(k[:, start : start + TILE]), self._values(v[:, start : start + TILE])
            self._rise(torch.maximum(self.pivot, keys.exponent.amax(1, keepdim=True)))
            self._fold(keys.of_keys(self.pivot), values)

    def read(self, q: torch.Tensor, start: int | None = None) -> Read:
        """Attend to every key so far: φ(q)·Σ φ(k)v / φ(q)·Σ φ(k).

        Args:
            q: [H, T, d].
            start: the position of the first query, for maps that weigh by distance; None is T before the end.
        Returns:
            [H, T, dv] in the dtype of the state, 0 where the normaliser is not positive, and how many rows of each
            head that were: [H] int64. Without keys all is 0.
        """
        self._check(q)
        start = self.tokens - q.shape[1] if start is None else start
        output = self.sums.new_zeros(*q.shape[:2], self.sums.shape[2] - 1)
        refused = torch.zeros(len(q), dtype=torch.int64)
        for first in range(0, q.shape[1] if self.tokens else 0, TILE):
            weights = self._queries(q[:, first : first + TILE], start + first).of_queries(self.pivot)
            output[:, first : first + TILE], more = _divided(weights @ self.sums)
            refused += more
        return output, refused

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offset: int = 0, chunk: int = CHUNK) -> Read:
        """Take in T keys and let each query attend to the keys up to its own, and to all that were before.

        Args:
            q: [H, R, d], query i stands at new key i + offset; 0 ≤ offset ≤ T − R.
            k: [H, T, d].
            v: [H, T, dv].
            offset: where the first query stands.
            chunk: keys taken at once; the answer depends on it by rounding alone.
        Returns:
            As `read` does, [H, R, dv] and [H].
        """
        self._check(k, v)
        self._check(q)
        output = self.sums.new_zeros(*q.shape[:2], v.shape[2])
        refused = torch.zeros(len(q), dtype=torch.int64)
        for start in range(0, k.shape[1], chunk):
            new = slice(start, min(start + chunk, k.shape[1]))
            asking = slice(*(min(max(edge - offset, 0), q.shape[1]) for edge in (new.start, new.stop)))
            if asking.start == asking.stop:
                self.append(k[:, new], v[:, new])
                continue
            here = asking.start + offset - start
            output[:, asking], more = self._attend_chunk(q[:, asking], k[:, new], v[:, new], here)
            refused += more
        return output, refused

    def _attend_chunk(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offset: int) -> Read:
        keys = self._keys(k)
        pivot = torch.maximum(self.pivot, keys.exponent.amax(1, keepdim=True))
        first = torch.maximum(self.pivot, keys.exponent[:, : offset + 1].amax(1, keepdim=True))
        if float((pivot - first).max()) > _GAP:
            # A later key of the chunk sets a scale at which the first query's keys would vanish.
            return self.attend(q, k, v, offset, (k.shape[1] + 1) // 2)
        weights, values = self._queries(q, self.tokens + offset).of_queries(pivot), self._values(v)
        self._rise(pivot)
        lifted = keys.of_keys(pivot)
        inside = (weights @ lifted.mT).tril_(offset)
        answer = _divided((weights @ self.sums).baddbmm_(inside, values))
        self._fold(lifted, values)
        return answer

    def _keys(self, k: torch.Tensor) -> Features:
        k = primed(k, abs(self.setting.scale), self.setting.dtype)
        return self.map.keys(k, torch.arange(self.tokens, self.tokens + k.shape[1]))

    def _queries(self, q: torch.Tensor, start: int) -> Features:
        q = primed(q, self.setting.scale, self.setting.dtype)
        return self.map.queries(q, torch.arange(start, start + q.shape[1]))

    def _values(self, v: torch.Tensor) -> torch.Tensor:
        v = v.detach().to(self.setting.dtype)
        return torch.cat([v, v.new_ones(*v.shape[:2], 1)], -1)

    def _rise(self, pivot: torch.Tensor) -> None:
        self.sums *= (self.pivot - pivot).exp_().mT
        self.pivot = pivot

    def _fold(self, lifted: torch.Tensor, values: torch.Tensor) -> None:
        self.sums.baddbmm_(lifted.mT, values)
        self.tokens += values.shape[1]

    def _check(self, x: torch.Tensor, v: torch.Tensor | None = None) -> None:
        name, heads, dim = "q" if v is None else "k", len(self.sums), self.setting.dim
        if x.ndim != 3 or (x.shape[0], x.shape[2]) != (heads, dim):
            raise ShapeError(name, f"expected [{heads}, tokens, {dim}], got {list(x.shape)}")
        if v is not None and v.shape != (heads, x.shape[1], self.sums.shape[2] - 1):
            raise ShapeError("v", f"expected [{heads}, {x.shape[1]}, {self.sums.shape[2] - 1}], got {list(v.shape)}")


def _divided(both: torch.Tensor) -> Read:
    """Divide [H, T, dv + 1] by its last column, where that is positive."""
    normaliser = both[..., -1:]
    refused = ~(normaliser >= torch.finfo(both.dtype).tiny)  # NaN is refused too
    return (both[..., :-1] / normaliser).masked_fill_(refused, 0), refused.sum((1, 2))
