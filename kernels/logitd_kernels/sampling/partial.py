"""Sampling a head form: the chain at both ends of what the tail may weigh, exact only where they agree."""

import math
from collections.abc import Iterable

from logitd_kernels.errors import HeadTooShort
from logitd_kernels.head import Prefix, Token
from logitd_kernels.rows import Edits, HeadOfRow
from logitd_kernels.sampling.chain import Drawn, greedy, logprobs_of, point_logprobs, sample_row, temperature_of
from logitd_kernels.sampling.result import RowLogprobs, RowResult, TopLogprob
from logitd_kernels.sampling.transform import Values
from logitd_kernels.select.partial import KEPT_OPEN, TOKEN_OPEN, PartialRow, ProcessedHead
from logitd_kernels.tail import Interval

_OPEN = 1e-3  # a number the tail leaves open by more than this is not reported
_ROUNDING = 2.0**-40  # of the dense sum this answer must agree with, whatever the backend's order of addition


def sample_partial(head: HeadOfRow, edits: Edits, values: Values, seed: int, logprobs: int, raw: bool) -> RowResult:
    """Answer one row of a head form.

    Args:
        head: the head as sent.
        edits: what is done to the row's logits.
        values: its checked parameters.
        seed: the seed of the draw.
        logprobs: how many top log-probabilities to report; 0 for none.
        raw: of the untouched row at T = 1; otherwise of the processed row at the request's temperature.
    Raises:
        BadRow, HeadTooShort: the tail leaves the answer open and `allow_inexact` is not set.
        HeadError: log Z cannot belong to this head.
    """
    processed = ProcessedHead(head, edits)
    try:
        result, drawn = _agreed(processed, values, seed)
    except HeadTooShort:
        if not values["allow_inexact"]:
            raise
        result, drawn = _best_guess(processed, values, seed)
    if not logprobs:
        return result
    source = ProcessedHead(head, Edits(head.vocab_size)) if raw else processed
    temperature = 1.0 if raw else temperature_of(values)
    try:
        return result._replace(top=_logprobs(source, temperature, drawn.tokens, logprobs, lenient=False))
    except HeadTooShort:
        if not values["allow_inexact"]:
            raise
        top = _logprobs(source, temperature, drawn.tokens, logprobs, lenient=True)
        return result._replace(top=top, exact=False)


def _agreed(processed: ProcessedHead, values: Values, seed: int) -> tuple[RowResult, Drawn]:
    temperature = temperature_of(values)
    if temperature == 0:
        drawn = greedy(PartialRow(processed, 1.0, 0.0), values)
        return _report(processed, drawn, drawn, Interval(0.0, 0.0), seed, exact=True), drawn
    low, high = (sample_row(row, values, seed) for row in _ends(processed, temperature))
    if [token.id for token in low.tokens] != [token.id for token in high.tokens]:
        raise HeadTooShort(TOKEN_OPEN)
    if low.kept.count != high.kept.count:
        raise HeadTooShort(KEPT_OPEN)
    entropy = _entropy(processed, temperature, low.everything, high.everything)
    return _report(processed, low, high, entropy, seed, exact=True), low


def _best_guess(processed: ProcessedHead, values: Values, seed: int) -> tuple[RowResult, Drawn]:
    temperature = temperature_of(values) or 1.0
    tail = processed.tail_mass(temperature)
    row = PartialRow(processed, temperature, (tail.low + tail.high) / 2, lenient=True)
    drawn = greedy(row, values) if temperature_of(values) == 0 else sample_row(row, values, seed)
    return _report(processed, drawn, drawn, Interval(0.0, math.inf), seed, exact=False), drawn


def _logprobs(
    head: ProcessedHead, temperature: float, tokens: list[Token], count: int, *, lenient: bool
) -> RowLogprobs:
    if temperature == 0:
        return point_logprobs(tokens)
    low, high = (logprobs_of(row, tokens, count) for row in _ends(head, temperature, lenient=lenient))
    top = [TopLogprob(a.token, _settled((a.logprob, b.logprob))) for a, b in zip(low.top, high.top, strict=True)]
    return RowLogprobs([_settled(pair) for pair in zip(low.of_tokens, high.of_tokens, strict=True)], top)


def _ends(processed: ProcessedHead, temperature: float, *, lenient: bool = False) -> tuple[PartialRow, PartialRow]:
    """Return the row with the lightest and the heaviest tail, a rounding of the whole row apart at least."""
    tail = processed.tail_mass(temperature)
    slack = _ROUNDING * PartialRow(processed, temperature, tail.high, lenient=True).stats.everything.mass
    return (
        PartialRow(processed, temperature, tail.low - min(slack, 0.5), lenient=lenient),
        PartialRow(processed, temperature, tail.high + slack, lenient=lenient),
    )


def _entropy(processed: ProcessedHead, temperature: float, low: Prefix, high: Prefix) -> Interval:
    """Bound the entropy of the whole row over every tail in the interval."""
    tail = processed.tail_mass(temperature)
    fattest = min(tail.high, max(tail.low, processed.tail_count / math.e))  # m·ln(n/m) peaks at n/e
    energies = [processed.tail_energy(mass, temperature) for mass in (tail.low, tail.high, fattest)]
    least, most = min(e.low for e in energies), max(e.high for e in energies)
    return Interval(
        math.log(low.mass) + (low.energy + least) / high.mass,
        math.log(high.mass) + (high.energy + most) / low.mass,
    )


def _report(
    processed: ProcessedHead, low: Drawn, high: Drawn, entropy: Interval, seed: int, *, exact: bool
) -> RowResult:
    # Nothing was cut: the tail is part of what is kept. (A row of one token, greedy included, has no tail.)
    whole = low.kept.count == low.everything.count != 1
    return RowResult(
        tokens=[token.id for token in low.tokens],
        logprobs=[_settled(pair) for pair in zip(low.logprobs, high.logprobs, strict=True)],
        entropy=_settled((max(0.0, entropy.low), max(0.0, entropy.high))),
        entropy_kept=_settled((max(0.0, entropy.low), entropy.high)) if whole else low.kept.entropy,
        kept=processed.finite_count if whole else low.kept.count,
        kept_mass=_settled(min(1.0, d.kept.mass / d.everything.mass) for d in (low, high)),
        seed=seed,
        exact=exact,
    )


def _settled(ends: Iterable[float | None]) -> float | None:
    """Return the middle of what the two ends say, None when they leave it open."""
    known = [end for end in ends if end is not None]
    low, high = min(known), max(known)
    return (low + high) / 2 if high - low <= _OPEN else None
