"""`sample`: rows of logits in, one answer or one error a row out."""

import secrets
from collections.abc import Sequence
from typing import Any

from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, ParameterError
from logitd_kernels.rows import DenseRows, HeadRows, Rows
from logitd_kernels.sampling.chain import (
    Drawn,
    draw_greedily,
    drawn_from,
    logprobs_of,
    point_logprobs,
    step_of,
    truncated,
)
from logitd_kernels.sampling.hot import hot_rows, sample_hot
from logitd_kernels.sampling.hot_heads import sample_heads
from logitd_kernels.sampling.notes import notes_of
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.partial import sample_partial
from logitd_kernels.sampling.prepared import Preparation
from logitd_kernels.sampling.registry import check
from logitd_kernels.sampling.result import RowFault, RowLogprobs, RowResult, Step
from logitd_kernels.sampling.transform import Values

Answer = RowResult | RowFault


def sample(
    rows: Rows,
    params: Values | Sequence[Values] = check({}),  # noqa: B008  (immutable)
    *,
    backend: Backend | None = None,
    logprobs: int = 0,
    logprobs_mode: str = "raw",
    trace: bool = False,
    order: Order = DEFAULT,
) -> list[Answer]:
    """Draw tokens from every row.

    Each row's answer is a pure function of that row, its parameters, seed, stream and step: it has the same bits alone
    and in any batch. Ties follow the total order (logit descending, id ascending).

    Args:
        rows: `DenseRows` or `HeadRows`.
        params: checked values (`registry.check`), one mapping for all rows or one a row.
        backend: where to compute; None picks one.
        logprobs: how many top log-probabilities to report a row; 0 for none.
        logprobs_mode: `raw`, of the untouched row at T = 1, or `processed`, after edits and temperature.
        trace: report the distribution after each active transform, and what decided (dense rows).
        order: in which transforms act.
    Returns:
        One `RowResult` or `RowFault` a row, in order: a bad row never touches its neighbours.
    Raises:
        ParameterError: a token id outside the vocabulary, a number of mappings that is not the number of rows, a
            negative `logprobs` or an unknown `logprobs_mode`.
        HeadError: a head form that contradicts itself.
    """
    values = list(params) if isinstance(params, Sequence) else [params] * len(rows)
    if len(values) != len(rows):
        raise ParameterError("params", f"expected one object, or one for each of {len(rows)} rows, got {len(values)}")
    if logprobs < 0:
        raise ParameterError("logprobs", f"must be at least 0, got {logprobs}")
    if logprobs_mode not in ("raw", "processed"):
        raise ParameterError("logprobs_mode", f'must be "raw" or "processed", got {logprobs_mode!r}')
    backend = backend or pick("auto")
    one = _RowSampler(rows, backend, order, logprobs, logprobs_mode == "raw", trace)
    answers: dict[int, Answer] = {}
    if backend.hot is not None and isinstance(rows, DenseRows) and not logprobs and not trace:
        hot = hot_rows(values, order, counts_history=backend.counts_history)
        drawn = sample_hot(backend.hot, rows, hot, values, one.preparation.hot_edits) if hot else []
        if len(drawn) == len(values):
            return drawn
        answers = dict(zip(hot, drawn, strict=True))
    if backend.heads is not None and isinstance(rows, HeadRows) and not logprobs:
        answers.update(sample_heads(backend.heads, rows, values, order))
    return [answers[index] if index in answers else one.answer(index, values[index]) for index in range(len(rows))]


class _RowSampler:
    def __init__(self, rows: Rows, backend: Backend, order: Order, logprobs: int, raw: bool, trace: bool) -> None:
        self.preparation = Preparation(rows, backend, order)
        self._rows = rows
        self._order = order
        self._logprobs = logprobs
        self._raw = raw
        self._trace = trace

    def answer(self, index: int, values: Values) -> Answer:
        seed = values["seed"] if values["seed"] is not None else secrets.randbits(53)
        own = {**self.preparation.known(index, values), "seed": seed}
        try:
            if isinstance(self._rows, HeadRows):
                edits = self.preparation.edits(index, values, own)
                head = self._rows.row(index)
                result, drawn = sample_partial(head, edits, own, self._order, self._logprobs, self._raw)
            else:
                result, drawn = self._dense(index, values, own)
        except BadRow as bad:
            return RowFault(index, bad.code, bad.kind, bad.detail)
        return result._replace(state=self._state(drawn, own))

    def _dense(self, index: int, values: Values, own: dict[str, Any]) -> tuple[RowResult, Drawn]:
        trace: list[Step] | None = [] if self._trace else None
        row = self.preparation.row(index, values, own, trace)
        if self._order.is_greedy(own):
            drawn = draw_greedily(row, own)
            if trace is not None:
                trace.append(step_of("temperature", drawn.kept, 0.0))
        else:
            drawn = drawn_from(truncated(row, own, self._order.steps, trace), own)
        kept = drawn.kept
        result = RowResult(
            tokens=[token.id for token in drawn.tokens],
            logprobs=list(drawn.logprobs),
            entropy=kept.whole_entropy,
            entropy_kept=kept.entropy,
            kept=kept.count,
            kept_mass=kept.mass,
            seed=own["seed"],
            top=self._top(index, drawn) if self._logprobs else None,
        )
        if trace is not None:
            result = result._replace(trace=trace, notes=notes_of(row, own, self._order, kept))
        return result, drawn

    def _top(self, index: int, drawn: Drawn) -> RowLogprobs:
        if self._raw:
            return logprobs_of(self.preparation.untouched(index), drawn.tokens, self._logprobs)
        if drawn.kept.greedy:
            return point_logprobs(drawn.tokens)
        return logprobs_of(drawn.kept.whole, drawn.tokens, self._logprobs)

    def _state(self, drawn: Drawn, values: Values) -> dict[str, float] | None:
        state: dict[str, float] = {}
        for transform in self._order.active(values):
            if transform.update is not None:
                state |= transform.update(values, drawn.kept.probability_of(drawn.tokens[0]))
        return state or None
