"""Sampling a head form: the chain at both ends of what the tail may weigh, exact only where they agree."""

import math
from collections.abc import Iterable

from logitd_kernels.edits import Edits
from logitd_kernels.errors import HeadTooShort
from logitd_kernels.head import Token
from logitd_kernels.rows import HeadOfRow
from logitd_kernels.sampling.chain import Drawn, draw_greedily, drawn_from, logprobs_of, point_logprobs, truncated
from logitd_kernels.sampling.order import Order
from logitd_kernels.sampling.result import RowLogprobs, RowResult, TopLogprob
from logitd_kernels.sampling.transform import Remap, Values
from logitd_kernels.select.openings import KEPT_OPEN, STATE_OPEN, TOKEN_OPEN
from logitd_kernels.select.partial import HEAVIEST, LIGHTEST, MIDDLE, PartialRow
from logitd_kernels.select.processed import ProcessedHead
from logitd_kernels.tail import Interval

_OPEN = 1e-3  # a number the tail leaves open by more than this is not reported


def sample_partial(
    head: HeadOfRow, edits: Edits, values: Values, order: Order, logprobs: int, raw: bool
) -> tuple[RowResult, Drawn]:
    """Answer one row of a head form.

    Args:
        head: the head as sent.
        edits: what is done to the row's logits.
        values: its checked parameters, with the seed of the draw.
        order: the steps.
        logprobs: how many top log-probabilities to report; 0 for none.
        raw: of the untouched row at T = 1; otherwise of the processed row at the temperature drawn at.
    Raises:
        BadRow, HeadTooShort: the tail leaves the answer open and `allow_inexact` is not set.
        HeadError: log Z cannot belong to this head.
    """
    processed = ProcessedHead(head, edits)
    greedy = order.is_greedy(values)
    try:
        result, drawn = _agreed(processed, values, order)
    except HeadTooShort:
        if not values["allow_inexact"]:
            raise
        result, drawn = _best_guess(processed, values, order)
    if not logprobs:
        return result, drawn
    if not raw and greedy:
        return result._replace(top=point_logprobs(drawn.tokens)), drawn
    remapped = any(isinstance(one, Remap) for one in order.active(values))
    if not raw and remapped:  # then no tail is left, or all is a guess
        return result._replace(top=logprobs_of(drawn.kept.whole, drawn.tokens, logprobs)), drawn
    source = ProcessedHead(head, Edits(head.vocab_size)) if raw else processed
    temperature = 1.0 if raw else drawn.kept.whole.temperature
    try:
        return result._replace(top=_logprobs(source, temperature, drawn.tokens, logprobs, lenient=False)), drawn
    except HeadTooShort:
        if not values["allow_inexact"]:
            raise
        top = _logprobs(source, temperature, drawn.tokens, logprobs, lenient=True)
        return result._replace(top=top, exact=False), drawn


def _agreed(processed: ProcessedHead, values: Values, order: Order) -> tuple[RowResult, Drawn]:
    if order.is_greedy(values):
        drawn = draw_greedily(PartialRow(processed.known, 1.0, lambda _: Interval(0.0, 0.0), MIDDLE), values)
        return _report(processed, drawn, drawn, Interval(0.0, 0.0), values, exact=True), drawn
    low, high = (drawn_from(truncated(row, values, order.steps), values) for row in _ends(processed))
    if [token.id for token in low.tokens] != [token.id for token in high.tokens]:
        raise HeadTooShort(TOKEN_OPEN)
    if (low.kept.count, low.kept.dropped) != (high.kept.count, high.kept.dropped):
        raise HeadTooShort(KEPT_OPEN)
    if abs(low.logprobs[0] - high.logprobs[0]) > _OPEN and any(one.update for one in order.active(values)):
        raise HeadTooShort(STATE_OPEN)
    return _report(processed, low, high, _entropy(processed, low, high), values, exact=True), low


def _best_guess(processed: ProcessedHead, values: Values, order: Order) -> tuple[RowResult, Drawn]:
    row = PartialRow(processed.known, 1.0, processed.tail_mass, MIDDLE, lenient=True)
    greedy = order.is_greedy(values)
    drawn = draw_greedily(row, values) if greedy else drawn_from(truncated(row, values, order.steps), values)
    return _report(processed, drawn, drawn, Interval(0.0, math.inf), values, exact=False), drawn


def _logprobs(
    head: ProcessedHead, temperature: float, tokens: list[Token], count: int, *, lenient: bool
) -> RowLogprobs:
    low, high = (logprobs_of(row.at(temperature), tokens, count) for row in _ends(head, lenient=lenient))
    top = [TopLogprob(a.token, _settled((a.logprob, b.logprob))) for a, b in zip(low.top, high.top, strict=True)]
    return RowLogprobs([_settled(pair) for pair in zip(low.of_tokens, high.of_tokens, strict=True)], top)


def _ends(processed: ProcessedHead, *, lenient: bool = False) -> list[PartialRow]:
    """Return the row with the lightest and the heaviest tail, a rounding of the whole row apart at least."""
    return [PartialRow(processed.known, 1.0, processed.tail_mass, end, lenient=lenient) for end in (LIGHTEST, HEAVIEST)]


def _entropy(processed: ProcessedHead, low: Drawn, high: Drawn) -> Interval:
    """Bound the entropy of the whole row over every tail in the interval."""
    row, light, heavy = low.kept.whole, low.kept.whole.stats.everything, high.kept.whole.stats.everything
    tail = processed.tail_mass(row.temperature)
    fattest = min(tail.high, max(tail.low, processed.tail_count / math.e))  # m·ln(n/m) peaks at n/e
    energies = [processed.tail_energy(mass, row.temperature) for mass in (tail.low, tail.high, fattest)]
    least, most = min(e.low for e in energies), max(e.high for e in energies)
    return Interval(
        math.log(light.mass) + (light.energy + least) / heavy.mass,
        math.log(heavy.mass) + (heavy.energy + most) / light.mass,
    )


def _report(
    processed: ProcessedHead, low: Drawn, high: Drawn, entropy: Interval, values: Values, *, exact: bool
) -> RowResult:
    kept, finite = low.kept, processed.finite_count
    # Nothing was cut: the tail is part of what is kept. (A row of one token, greedy included, has no tail.)
    uncut = kept.weights is None and kept.prefix.count == kept.row.stats.everything.count != 1
    whole = uncut and kept.row is kept.whole
    inside = None if uncut and processed.tail_count else kept.entropy
    return RowResult(
        tokens=[token.id for token in low.tokens],
        logprobs=[_settled(pair) for pair in zip(low.logprobs, high.logprobs, strict=True)],
        entropy=_settled((max(0.0, entropy.low), max(0.0, entropy.high))),
        entropy_kept=_settled((max(0.0, entropy.low), entropy.high)) if whole else inside,
        kept=kept.count if not uncut else finite if finite is None else finite - kept.dropped,
        kept_mass=_settled((kept.mass, high.kept.mass)),
        seed=values["seed"],
        exact=exact,
    )


def _settled(ends: Iterable[float | None]) -> float | None:
    """Return the middle of what the two ends say, None when they leave it open."""
    known = [end for end in ends if end is not None]
    low, high = min(known), max(known)
    return (low + high) / 2 if high - low <= _OPEN else None
