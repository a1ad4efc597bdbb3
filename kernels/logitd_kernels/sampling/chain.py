"""The sampling chain on one ordered row: temperature, truncations, draw. Written once for all backends."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logitd_kernels.head import Floats, Ids, Prefix, Token
from logitd_kernels.sampling.draw import draw, draw_weighed
from logitd_kernels.sampling.result import RowLogprobs, Step, TopLogprob
from logitd_kernels.sampling.transform import Band, Cut, Remap, Reweigh, Scale, Transform, Values
from logitd_kernels.select.ordered import OrderedRow


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of a row before the draw.

    Attributes:
        whole: the row before truncation, at its last temperature.
        row: the same without what was dropped from its top.
        prefix: of `row`: what is kept.
        dropped: how many tokens were dropped from the top.
        weights: of the tokens of `prefix`, in the total order; None for their masses.
        greedy: whether the temperature is 0, at which the largest logit is all there is.
    """

    whole: OrderedRow
    row: OrderedRow
    prefix: Prefix
    dropped: int = 0
    weights: Floats | None = None
    greedy: bool = False

    @property
    def whole_entropy(self) -> float:
        """Entropy in nats before truncation."""
        return 0.0 if self.greedy else self.whole.stats.everything.entropy

    @property
    def mass(self) -> float:
        """The share of the row's mass that is kept, in (0, 1]."""
        if self.greedy:
            return 1.0
        shift = 0.0 if self.row is self.whole else (self.row.max - self.whole.max) / self.row.temperature
        return min(1.0, self.prefix.mass / self.whole.stats.everything.mass * math.exp(shift))

    @property
    def entropy(self) -> float:
        """Entropy in nats of the distribution drawn from; of a head form's tail, its energy is missing."""
        if self.weights is None:
            return self.prefix.entropy
        shares = self.weights[self.weights > 0] / self.weights.sum()
        return max(0.0, float(-np.sum(shares * np.log(shares))))

    @property
    def count(self) -> int:
        """How many tokens can be drawn."""
        return self.prefix.count if self.weights is None else int(np.count_nonzero(self.weights))

    @property
    def largest(self) -> float:
        """The probability of the likeliest token."""
        return 1.0 / self.prefix.mass if self.weights is None else float(self.weights.max() / self.weights.sum())

    def shares(self) -> tuple[Ids, Floats]:
        """Return the ids of the tokens kept, and the probabilities with which they are drawn."""
        if self.weights is not None:
            count = self.prefix.count
            return self.row.head(count).ids[:count], self.weights / self.weights.sum()
        with np.errstate(over="ignore"):
            masses = np.exp((self.row.logits_of(self.prefix) - self.row.max) / self.row.temperature)
        return self.row.ids_of(self.prefix), masses / masses.sum()

    def probability_of(self, token: Token) -> float:
        """The probability of a token among those kept, before they were weighed anew."""
        return math.exp(min(0.0, self._log_mass_of(token)))

    def logprob_of(self, token: Token) -> float:
        """The natural log of the probability with which a token is drawn."""
        if self.weights is not None:
            return math.log(float(self.weights[token.rank]) / float(self.weights.sum()))
        return min(0.0, self._log_mass_of(token))

    def _log_mass_of(self, token: Token) -> float:
        return (token.logit - self.row.max) / self.row.temperature - math.log(self.prefix.mass)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the chain found: the tokens, the log-probabilities of their draw, and what they were drawn from."""

    tokens: list[Token]
    logprobs: list[float]
    kept: Kept


def draw_greedily(row: OrderedRow, values: Values) -> Drawn:
    """Take the largest processed logit, lowest id on ties: a distribution of one token, entropy 0."""
    token = row.head(1).token(0)
    return Drawn([token] * values["n"], [0.0] * values["n"], Kept(row, row, Prefix(1, 1.0, 0.0), greedy=True))


def truncated(row: OrderedRow, values: Values, order: Sequence[Transform], trace: list[Step] | None = None) -> Kept:
    """Take one processed row at temperature 1 through all active steps after the edits.

    Args:
        row: of which nothing is cut.
        values: with the `seed` that is used, not greedy.
        order: the steps, as they act.
        trace: where to note what each step left.
    """
    traced = trace is not None
    active = [one for one in order if one.active(values) or (traced and one.name == "temperature")]  # 1 is told too
    if active and active[0].name == "temperature":
        row = row.at(values["temperature"] or 1.0)  # nobody asks for sums at any other
    kept = Kept(row, row, row.stats.everything)
    for transform in active:
        began = time.perf_counter()
        kept = _after(transform, kept, values)
        if trace is not None:
            trace.append(step_of(transform.name, kept, time.perf_counter() - began))
    return kept


def drawn_from(kept: Kept, values: Values) -> Drawn:
    """Draw `n` tokens."""
    if kept.weights is None:
        tokens = draw(kept.row, kept.prefix, values)
    else:
        tokens = draw_weighed(kept.row.head(kept.prefix.count), kept.weights, values)
    return Drawn(tokens, [kept.logprob_of(token) for token in tokens], kept)


def step_of(name: str, kept: Kept, seconds: float) -> Step:
    """Return a line of a trace."""
    return Step(name, kept.entropy, kept.count, kept.mass, kept.largest, seconds)


def logprobs_of(row: OrderedRow, tokens: list[Token], count: int) -> RowLogprobs:
    """Return log-probabilities of the drawn tokens and of the `count` largest logits under softmax of this row."""
    log_mass = math.log(row.stats.everything.mass)

    def logprob(logit: float) -> float:
        return min(0.0, (logit - row.max) / row.temperature - log_mass)

    head = row.head(count)
    top = [
        TopLogprob(int(token), logprob(float(logit)))
        for token, logit in zip(head.ids[:count], head.logits[:count], strict=True)
    ]
    return RowLogprobs([logprob(row.logit_of(token.id)) for token in tokens], top)


def point_logprobs(tokens: list[Token]) -> RowLogprobs:
    """Return the log-probabilities of a greedy row: the token has all the mass."""
    return RowLogprobs([0.0] * len(tokens), [TopLogprob(tokens[0].id, 0.0)])


def _after(transform: Transform, kept: Kept, values: Values) -> Kept:
    """Return what one step leaves."""
    row, prefix = kept.row, kept.prefix
    match transform:
        case Scale():
            return _at(kept, transform.temperature(row, prefix, values))
        case Remap():
            return _remapped(kept, transform, values)
        case Cut():
            return _with(kept, prefix.count, transform.cut(row, prefix, values))
        case Band():
            return _banded(kept, *transform.band(row, prefix, values))
        case Reweigh():
            deltas = row.head(prefix.count).deltas[: prefix.count]
            weights = transform.weigh(np.exp(deltas) / prefix.mass, values)
            return Kept(kept.whole, row, prefix, kept.dropped, weights)
    return kept


def _at(kept: Kept, temperature: float) -> Kept:
    if temperature == 0:
        return _with(kept, kept.prefix.count, kept.row.first(1))
    row = kept.row.at(temperature)
    whole = row if kept.whole is kept.row else kept.whole.at(temperature)
    return Kept(whole, row, _first(row, kept.prefix.count), kept.dropped)


def _remapped(kept: Kept, transform: Remap, values: Values) -> Kept:
    row = kept.row.remapped(transform.remap(values))
    return Kept(row, row, _first(row, kept.prefix.count), kept.dropped)


def _banded(kept: Kept, first: int, end: int) -> Kept:
    if first == 0:
        return kept if end >= kept.prefix.count else _with(kept, end, kept.row.first(end))
    row = kept.row.without(first)
    return Kept(kept.whole, row, _first(row, end - first), kept.dropped + first)


def _with(kept: Kept, count: int, prefix: Prefix) -> Kept:
    """Keep a prefix of what is kept, if it is shorter."""
    return Kept(kept.whole, kept.row, prefix, kept.dropped) if prefix.count < kept.prefix.count else kept


def _first(row: OrderedRow, count: int) -> Prefix:
    everything = row.stats.everything
    return everything if count >= everything.count else row.first(count)
