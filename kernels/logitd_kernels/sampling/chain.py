"""The sampling chain on one ordered row: temperature, truncations, draw. Written once for all backends."""

import math
from dataclasses import dataclass

from logitd_kernels.head import Prefix, Token
from logitd_kernels.sampling.draw import draw
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.result import RowLogprobs, Step, TopLogprob
from logitd_kernels.sampling.transform import Cut, Edit, Scale, Values
from logitd_kernels.select.ordered import OrderedRow

_EDITS = [transform for transform in TRANSFORMS if isinstance(transform, Edit)]
_SCALE = next(transform for transform in TRANSFORMS if isinstance(transform, Scale))
_CUTS = [transform for transform in TRANSFORMS if isinstance(transform, Cut)]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the chain found: the tokens, the prefix they were drawn from, and the row before truncation."""

    tokens: list[Token]
    logprobs: list[float]
    everything: Prefix
    kept: Prefix
    trace: list[Step]


def temperature_of(values: Values) -> float:
    """Return the temperature of a row; 0 is greedy."""
    return _SCALE.temperature(values)


def edits_of(values: Values) -> list[Edit]:
    """Return the edits that the values make active, in order."""
    return [transform for transform in _EDITS if transform.active(values)]


def greedy(row: OrderedRow, values: Values) -> Drawn:
    """Take the largest processed logit, lowest id on ties: a distribution of one token, entropy 0."""
    point = Prefix(1, 1.0, 0.0)
    trace = [Step("temperature", 0.0, 1, 1.0)]
    return Drawn([row.head(1).token(0)] * values["n"], [0.0] * values["n"], point, point, trace)


def sample_row(row: OrderedRow, values: Values, seed: int) -> Drawn:
    """Truncate one row and draw from what is kept, at T > 0."""
    everything = kept = row.stats.everything
    trace = [_step("temperature", kept, everything)]
    for transform in _CUTS:
        if transform.active(values):
            shorter = transform.cut(row, kept, values)
            kept = shorter if shorter.count < kept.count else kept
            trace.append(_step(transform.name, kept, everything))
    tokens = draw(row, kept, values, seed)
    log_mass = math.log(kept.mass)
    logprobs = [min(0.0, (token.logit - row.max) / row.temperature - log_mass) for token in tokens]
    return Drawn(tokens, logprobs, everything, kept, trace)


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


def _step(name: str, kept: Prefix, everything: Prefix) -> Step:
    return Step(name, kept.entropy, kept.count, min(1.0, kept.mass / everything.mass))
