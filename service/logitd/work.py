"""What the engine computes for a request: rows that can be taken in parts, or put together with those of others."""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch

from logitd.plain_work import LIGHT_LOGITS
from logitd_kernels import DenseRows, HeadRows, RowFault, RowResult, sample
from logitd_kernels.backends import Backend
from logitd_kernels.errors import KernelError, ParameterError
from logitd_kernels.sampling.hot import is_hot
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.transform import Values

Outcome = Sequence[Any] | Exception

_log = logging.getLogger("logitd.work")
_LIGHT_HEADS = 1 << 12  # about 0.1 ms
_STACKED_BYTES = 1 << 16  # of a request whose rows are copied beside those of others rather than computed alone


class Work(Protocol):
    """Some rows to compute.

    Attributes:
        key: work of one key may be handed out together; None: it is not.
        rows: how many there are.
        row_bytes: of each.
        op: what it is, one of `metrics.OPS`.
        values: the parameters of each row that is sampled; none where nothing is.
        is_light: whether computing it takes no longer than handing it to another thread.
    """

    @property
    def key(self) -> Hashable: ...  # noqa: D102
    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def row_bytes(self) -> int: ...  # noqa: D102

    @property
    def op(self) -> str: ...  # noqa: D102
    @property
    def values(self) -> Sequence[Values]: ...  # noqa: D102

    @property
    def is_light(self) -> bool: ...  # noqa: D102

    def part(self, start: int, stop: int) -> "Work":
        """Return the work of some rows."""

    def compute(self, backend: Backend) -> Sequence[Any]:
        """Return an answer for each row, as if it were alone."""

    def sampled(self, answers: Sequence[Any]) -> Sequence[RowResult | RowFault]:
        """Return what became of each of `values`, out of what `compute` returned."""


@dataclass(frozen=True)
class SampleWork:
    """Dense rows to sample. `logprobs`, `logprobs_mode`, `trace` and `order` as in `logitd_kernels.sample`."""

    dense: DenseRows
    values: Sequence[Values]
    logprobs: int = 0
    logprobs_mode: str = "raw"
    trace: bool = False
    order: Order = DEFAULT
    first: int = 0  # the place of the first row in its request
    op: ClassVar[str] = "sample"

    @property
    def key(self) -> Hashable:
        """The operation, V and dtype, and what else is asked for."""
        logits, asked = self.dense.logits, (self.logprobs, self.logprobs_mode, self.trace, id(self.order))
        return (logits.shape[1], logits.dtype, self.dense.mask is None, *asked)

    @property
    def rows(self) -> int:
        """B."""
        return len(self.dense)

    @property
    def row_bytes(self) -> int:
        """V times the bytes of a logit."""
        return self.dense.vocab_size * self.dense.logits.element_size()

    def part(self, start: int, stop: int) -> "SampleWork":
        """Return the work of some rows; they know their places."""
        if (start, stop) == (0, self.rows):
            return self
        return replace(
            self, dense=self.dense.part(start, stop), values=self.values[start:stop], first=self.first + start
        )

    def compute(self, backend: Backend) -> list[RowResult | RowFault]:
        """Sample every row.

        Raises:
            ParameterError: its `row` counted in the request.
        """
        return _sampled(self.dense, self.values, self, backend, [self.first + row for row in range(self.rows)])

    def sampled(self, answers: Sequence[Any]) -> Sequence[RowResult | RowFault]:
        """Return the answers."""
        return answers

    @property
    def is_light(self) -> bool:
        """Whether it is a row or two of the hot chain."""
        few = self.rows * self.dense.vocab_size <= LIGHT_LOGITS
        return few and not self.logprobs and not self.trace and all(is_hot(one, self.order) for one in self.values)

    @property
    def is_small(self) -> bool:
        """Whether its rows are copied beside those of others sooner than they are computed alone."""
        beside = (self.dense.prompt_ids, self.dense.output_ids, self.dense.guidance_logits)
        return self.rows * self.row_bytes <= _STACKED_BYTES and all(one is None for one in beside)


def compute_together(works: Sequence[SampleWork], backend: Backend) -> list[list[RowResult | RowFault]]:
    """Compute works of one key as one batch."""
    mask = None if works[0].dense.mask is None else torch.cat([work.dense.mask for work in works])  # type: ignore[misc]
    rows = DenseRows(torch.cat([work.dense.logits for work in works]), mask)
    values = [value for work in works for value in work.values]
    places = [work.first + row for work in works for row in range(work.rows)]
    answers = iter(_sampled(rows, values, works[0], backend, places))
    return [[next(answers) for _ in range(work.rows)] for work in works]


@dataclass(frozen=True)
class HeadWork:
    """Rows in head form to sample, in one go."""

    heads: HeadRows
    values: Sequence[Values]
    logprobs: int = 0
    logprobs_mode: str = "raw"
    trace: bool = False
    order: Order = DEFAULT
    key: Hashable = None
    rows: int = 1
    op: ClassVar[str] = "sample_head"

    @property
    def row_bytes(self) -> int:
        """Of all of them."""
        return self.heads.logits.nbytes + self.heads.ids.nbytes

    @property
    def is_light(self) -> bool:
        """Whether it is a few heads of the hot chain."""
        few = self.heads.logits.numel() <= _LIGHT_HEADS
        return few and not self.logprobs and all(is_hot(one, self.order) for one in self.values)

    def part(self, start: int, stop: int) -> "HeadWork":
        """Return all of it."""
        return self

    def compute(self, backend: Backend) -> list[list[RowResult | RowFault]]:
        """Sample every row; their answers are one."""
        return [_sampled(self.heads, self.values, self, backend, range(len(self.heads)))]

    def sampled(self, answers: Sequence[Any]) -> Sequence[RowResult | RowFault]:
        """Return the answers, which are one."""
        rows: Sequence[RowResult | RowFault] = answers[0]
        return rows


def _sampled(
    rows: DenseRows | HeadRows,
    values: Sequence[Values],
    asked: SampleWork | HeadWork,
    backend: Backend,
    places: Sequence[int],
) -> list[RowResult | RowFault]:
    try:
        answers = sample(
            rows,
            values,
            backend=backend,
            logprobs=asked.logprobs,
            logprobs_mode=asked.logprobs_mode,
            trace=asked.trace,
            order=asked.order,
        )
    except ParameterError as error:
        raise ParameterError(error.field, error.message, None if error.row is None else places[error.row]) from None
    return [replace(answer, row=places[answer.row]) if isinstance(answer, RowFault) else answer for answer in answers]


def outcomes_of(works: Sequence[Work], backend: Backend) -> list[Outcome]:
    """Compute works: small ones together, the others one by one. Each has answers, or an error, of its own."""
    if len(works) == 1:
        return [_outcome(works[0], backend)]
    small = [work for work in works if isinstance(work, SampleWork) and work.is_small]
    if len(small) < 2:
        return [_outcome(work, backend) for work in works]
    together = dict(zip(map(id, small), _halving(small, backend), strict=True))
    return [together[id(work)] if id(work) in together else _outcome(work, backend) for work in works]


def _halving(works: Sequence[SampleWork], backend: Backend) -> list[Outcome]:
    """Compute works as one batch; where that fails, halve it until the guilty one is alone."""
    if len(works) == 1:
        return [_outcome(works[0], backend)]
    try:
        return list(compute_together(works, backend))
    except Exception:
        half = len(works) // 2
        return _halving(works[:half], backend) + _halving(works[half:], backend)


def _outcome(work: Work, backend: Backend) -> Outcome:
    try:
        return work.compute(backend)
    except Exception as error:
        if not isinstance(error, KernelError):
            _log.error("a computation failed", exc_info=error)
        return error
