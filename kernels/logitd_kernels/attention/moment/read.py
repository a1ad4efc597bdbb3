"""How a query reads a moment state: a second-order Hermite expansion of e^logit around the keys' weighted mean."""

from dataclasses import dataclass

import torch

Coefficients = tuple[float, float, float]
PLAIN: Coefficients = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Reading:
    """What a state says to its queries: they get numerator / denominator, and e^log_mass · denominator weighs it.

    Attributes:
        numerator: [N, n, dv].
        denominator: [N, n].
        log_mass: [N, n], the log-scale of both, as far as the query's logits are normal; −inf for an empty state.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    log_mass: torch.Tensor


@dataclass(frozen=True)
class Spread:
    """Where the logits of a query lie under the weights of a state, and how far apart.

    Attributes:
        mean: b, [N, n].
        low_mean: b_r, [N, n], the part of b that the quadratic directions add.
        variance: s², [N, n], in these directions.
    """

    mean: torch.Tensor
    low_mean: torch.Tensor
    variance: torch.Tensor

    @property
    def kappa(self) -> torch.Tensor:
        """Κ = min(s², 1), what makes a Hermite polynomial of a Taylor polynomial and leaves its weights positive."""
        return self.variance.clamp(max=1)

    @property
    def log_mean(self) -> torch.Tensor:
        """The log of the mean of e^logit for normal logits: b + s²/2, with s² ≤ 4."""
        return self.mean + self.variance.clamp(max=4) / 2


def pairs(y: torch.Tensor) -> torch.Tensor:
    """Return the products y_i y_j, i ≤ j, of every column: [..., r, n] -> [..., r (r + 1) / 2, n].

    They stand by their distance around the ring 0 … r − 1, so that every distance is one product of two slices: the r
    squares, then y_i y_(i+1) and so on.
    """
    rank = y.shape[-2]
    ring = torch.cat([y, y[..., : rank // 2, :]], -2)
    products = ring.unfold(-2, rank, 1).movedim(-1, -2) * y.unsqueeze(-3)  # [..., distance, r, n]
    return products.flatten(-3, -2)[..., : rank * (rank + 1) // 2, :]


class Expansion:
    """Some states expanded along queries of their own: what all coefficients have in common.

        num = V0 (a0 − a2 κ/2) + a1 A1 + a2 A2 / 2,  den = Z (a0 + a2 (s² − κ)/2)
        A1 = x·V1 − b V0,  A2 = y·V2·y − 2 b_r y·K V1 + b_r² V0

    With a = (1, 1, 1) the denominator is at least Z > 0.

    Args:
        sums: [N, m, dv + 1], as `MomentState` holds them.
        log_scale: [N].
        key_map: K, [N, r, d].
        x: [N, n, d], queries times the scale less c.
        y: [N, r, n], their quadratic directions.
    """

    def __init__(
        self, sums: torch.Tensor, log_scale: torch.Tensor, key_map: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> None:
        dim = x.shape[2]
        self._first, self._linear, self._square = sums[:, :1], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
        self._low = torch.bmm(key_map, self._linear)
        self._x, self._y, self._products = x, y, pairs(y)
        self._mass = self._first[..., -1]
        self._spread = self._spread_of()
        self.log_mass = log_scale[:, None] + self._spread.log_mean

    def _spread_of(self) -> Spread:
        """Find b = x·S1/Z, b_r = y·K S1/Z and s² = y·S2·y/Z − b_r²; all 0 in an empty state."""
        inverse = torch.where(self._mass > 0, 1 / self._mass, 0)
        mean = torch.bmm(self._x, self._linear[..., -1:])[..., 0] * inverse
        low_mean = torch.bmm(self._low[..., -1:].mT, self._y)[:, 0] * inverse
        variance = torch.bmm(self._square[..., -1:].mT, self._products)[:, 0] * inverse - low_mean**2
        return Spread(mean, low_mean, variance.clamp_(min=0))

    def reading(self, coefficients: Coefficients = PLAIN) -> Reading:
        """Read the states under some coefficients a."""
        a0, a1, a2 = coefficients
        mean, low_mean, kappa = self._spread.mean, self._spread.low_mean, self._spread.kappa
        constant = a0 - a1 * mean + a2 / 2 * (low_mean**2 - kappa)
        numerator = torch.bmm(self._x, self._linear[..., :-1])
        numerator.baddbmm_(self._products.mT, self._square[..., :-1], beta=a1, alpha=a2 / 2)
        corrections = torch.cat([self._y * (-a2 * low_mean)[:, None], constant[:, None]], 1)  # [N, r + 1, n]
        numerator.baddbmm_(corrections.mT, torch.cat([self._low[..., :-1], self._first[..., :-1]], 1))
        denominator = self._mass * (a0 + a2 / 2 * (self._spread.variance - kappa))
        return Reading(numerator, denominator, self.log_mass)

    def orders(self) -> torch.Tensor:
        """Return what a0, a1 and a2 are the coefficients of in numerator and denominator: [3, N, n, dv + 1]."""
        spread = self._spread
        mean, low_mean = spread.mean[..., None], spread.low_mean[..., None]
        first = torch.bmm(self._x, self._linear) - mean * self._first  # last column 0, by the choice of b
        square = torch.bmm(self._products.mT, self._square) - 2 * low_mean * torch.bmm(self._y.mT, self._low)
        second = (square + (low_mean**2 - spread.kappa[..., None]) * self._first) / 2
        return torch.stack([self._first.expand_as(first), first, second])


def quotient(numerator: torch.Tensor, denominator: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Divide [N, n, dv] by [N, n] into `out`; return where that cannot be done, [N, n] bool: the answer is 0 there."""
    torch.div(numerator, denominator[..., None], out=out)
    bad = ~((denominator > 0) & torch.isfinite(denominator) & torch.isfinite(out.sum(2)))
    if bad.any():
        out.masked_fill_(bad[..., None], 0)
    return bad
