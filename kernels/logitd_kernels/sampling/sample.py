"""`sample`: rows of logits in, one answer or one error a row out."""

import secrets
from collections.abc import Sequence

from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, ParameterError
from logitd_kernels.rows import DenseRows, Edits, HeadRows, Rows, unpack_mask
from logitd_kernels.sampling.chain import edits_of, greedy, logprobs_of, point_logprobs, sample_row, temperature_of
from logitd_kernels.sampling.hot import is_hot, sample_hot
from logitd_kernels.sampling.hot_heads import sample_heads
from logitd_kernels.sampling.partial import sample_partial
from logitd_kernels.sampling.registry import check
from logitd_kernels.sampling.result import RowFault, RowLogprobs, RowResult
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
) -> list[Answer]:
    """Draw tokens from every row.

    Each row's answer is a pure function of that row, its parameters, seed, stream and step: it has the same bits alone
    and in any batch. Steps act in the registry's order; ties follow the total order (logit descending, id ascending).

    Args:
        rows: `DenseRows` or `HeadRows`.
        params: checked values (`registry.check`), one mapping for all rows or one a row.
        backend: where to compute; None picks one.
        logprobs: how many top log-probabilities to report a row; 0 for none.
        logprobs_mode: `raw`, of the untouched row at T = 1, or `processed`, after edits and temperature.
        trace: report the distribution after each active transform (dense rows).
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
    one = _RowSampler(rows, backend, logprobs, logprobs_mode == "raw", trace)
    answers: dict[int, Answer] = {}
    if backend.hot is not None and isinstance(rows, DenseRows) and not logprobs and not trace:
        hot = [index for index, own in enumerate(values) if is_hot(own)]
        drawn = sample_hot(backend.hot, rows, hot, values, one.edits) if hot else []
        if len(drawn) == len(values):
            return drawn
        answers = dict(zip(hot, drawn, strict=True))
    if backend.heads is not None and isinstance(rows, HeadRows) and not logprobs:
        answers.update(sample_heads(backend.heads, rows, values))
    return [answers[index] if index in answers else one.answer(index, values[index]) for index in range(len(rows))]


class _RowSampler:
    def __init__(self, rows: Rows, backend: Backend, logprobs: int, raw: bool, trace: bool) -> None:
        self._rows = rows
        self._backend = backend
        self._logprobs = logprobs
        self._raw = raw
        self._trace = trace
        self._shared: dict[int, Edits] = {}  # of parameters that several rows share; `values` outlive it

    def answer(self, index: int, values: Values) -> Answer:
        seed = values["seed"] if values["seed"] is not None else secrets.randbits(53)
        try:
            edits = self.edits(index, values)
            if isinstance(self._rows, HeadRows):
                return sample_partial(self._rows.row(index), edits, values, seed, self._logprobs, self._raw)
            return self._dense(self._rows, index, edits, values, seed)
        except BadRow as bad:
            return RowFault(index, bad.code, bad.kind, bad.detail)

    def edits(self, index: int, values: Values) -> Edits:
        """Return what is done to single logits of a row."""
        if self._rows.mask is None:
            if id(values) not in self._shared:
                self._shared[id(values)] = self._edited(index, values)
            return self._shared[id(values)]
        mask = unpack_mask(self._rows.mask[index], self._rows.vocab_size)
        return self._edited(index, {**values, "mask": mask})

    def _edited(self, index: int, values: Values) -> Edits:
        edits = Edits(self._rows.vocab_size)
        try:
            for transform in edits_of(values):
                transform.edit(edits, values)
        except ParameterError as error:
            raise ParameterError(error.field, error.message, index) from None
        return edits

    def _dense(self, rows: DenseRows, index: int, edits: Edits, values: Values, seed: int) -> RowResult:
        temperature = temperature_of(values)
        row = self._backend.row(edits.apply(rows.row(index)), temperature or 1.0)
        drawn = sample_row(row, values, seed) if temperature else greedy(row, values)
        top: RowLogprobs | None = None
        if self._logprobs:
            if self._raw:
                top = logprobs_of(self._backend.row(rows.row(index), 1.0), drawn.tokens, self._logprobs)
            else:
                top = logprobs_of(row, drawn.tokens, self._logprobs) if temperature else point_logprobs(drawn.tokens)
        return RowResult(
            tokens=[token.id for token in drawn.tokens],
            logprobs=list(drawn.logprobs),
            entropy=drawn.everything.entropy,
            entropy_kept=drawn.kept.entropy,
            kept=drawn.kept.count,
            kept_mass=min(1.0, drawn.kept.mass / drawn.everything.mass),
            seed=seed,
            top=top,
            trace=drawn.trace if self._trace else None,
        )
