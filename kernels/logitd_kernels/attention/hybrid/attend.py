"""Hybrid attention: heavy keys and a local window exactly, the rest by a moment state."""

from dataclasses import dataclass
from functools import cached_property

import torch

from logitd_kernels.attention.call import Approximate, Call, Options
from logitd_kernels.attention.exact_rows import HeadRows, head_rows
from logitd_kernels.attention.hybrid.cost import cost_of, state_bytes
from logitd_kernels.attention.hybrid.far import Far
from logitd_kernels.attention.hybrid.fit import Orders, coefficients_of
from logitd_kernels.attention.hybrid.head import Head, Parts
from logitd_kernels.attention.hybrid.heavy import distances, heavy_keys, key_reach, outlying_queries
from logitd_kernels.attention.hybrid.scratch import Scratch
from logitd_kernels.attention.hybrid.tile import attend
from logitd_kernels.attention.moment.calibrate import Basis, basis_of, check_rank
from logitd_kernels.attention.moment.read import PLAIN
from logitd_kernels.attention.parts import batch_row
from logitd_kernels.attention.sampling import rows_of, seeing
from logitd_kernels.attention.sequences import check_structured, dtype_of


@dataclass(frozen=True)
class Hybrid(Approximate):
    """What hybrid attention gives.

    Attributes:
        coefficients: [B, Hq, 3] of the far keys' polynomial, 1 where none were fitted or the fit did not help.
    """

    coefficients: torch.Tensor


@torch.no_grad()
def hybrid(call: Call, options: Options, basis: Basis | None = None, parts: Parts | None = None) -> Hybrid:
    """Attend with exact parts and a moment state under one softmax, in time and memory linear in the length.

    Not causal: exact are blocks of 64 keys around a query's own, and heavy keys: those of the largest mass on audited
    rows, the first ones, and outliers. The queries farthest from the centre are answered exactly altogether. The
    polynomial's three orders get coefficients fitted to exact rows; other rows decide on them, half of those that an
    audit of the same seed reports.

    Causal: exact are the first keys and the recent ones; a block of 64 enters the state when it leaves the window, so a
    token's answer depends on positions alone, not on how a sequence came in. Nothing is chosen or fitted by what comes
    later.

    Args:
        call: causality, alignment and lengths are kept.
        options: `rank` (without a basis), and `seed` of the exact rows.
        basis: coordinates to use, [Hq, ...] or [B, Hq, ...]; None calibrates on the call.
        parts: what is exact; None is `Parts()`.
    Raises:
        ParameterError: a rank that is none, or a rule that a state cannot keep: mask, window, softcap, sink_logits;
            `scale`, where q, k and the scale are too large for second order.
        ShapeError: a basis for other heads.
    """
    check_structured(call, "hybrid")
    check_rank(options.rank)
    parts = parts or Parts()
    bases = basis_of(call, options.rank, basis)
    answer, scratch = _Answer.blank(call), Scratch(dtype_of(call))
    for index in range(call.batch):
        row = batch_row(call, index)
        if row.queries and row.keys:
            fit, report = rows_of(row, parts.rows, options.seed)
            for number in range(call.heads):
                place = _Place(row, number, bases[index][number], parts, scratch)
                _attend_head(answer, index, place, fit, report[::2])
    return Hybrid(
        answer.output.to(call.q.dtype),
        answer.refused,
        state_bytes(call, bases.rank, parts),
        cost_of(call, bases.rank, parts, basis is None),
        answer.coefficients,
    )


@dataclass(frozen=True)
class _Answer:
    """What the heads fill in: output, refused queries, coefficients."""

    output: torch.Tensor
    refused: torch.Tensor
    coefficients: torch.Tensor

    @classmethod
    def blank(cls, call: Call) -> "_Answer":
        shape = call.q.shape[:2]
        output = torch.zeros(*shape, call.queries, call.v.shape[3], dtype=dtype_of(call))
        return cls(output, torch.zeros(shape, dtype=torch.int64), torch.ones(*shape, 3))


@dataclass(frozen=True)
class _Place:
    """A head of a call of one batch row, and what is the same for all of them."""

    row: Call
    number: int
    basis: Basis
    parts: Parts
    scratch: Scratch

    @cached_property
    def q(self) -> torch.Tensor:
        """Queries times the scale, [R, d]."""
        return self.row.q[0, self.number].to(self.scratch.dtype) * self.row.scaling

    @cached_property
    def norms(self) -> torch.Tensor:
        """How far queries are from their centre, [R]."""
        return distances(self.q, self.basis.query_centre)

    def rows(self, rows: torch.Tensor) -> HeadRows:
        """Attend exactly with some queries."""
        return head_rows(self.row, self.number, rows)

    def head(self, fitting: HeadRows | None) -> Head:
        """Cut the head into blocks. Its heavy keys come from audited rows; without these they are the first keys."""
        row, parts = self.row, self.parts
        k, v = (x[0, self.number // row.group].to(self.scratch.dtype) for x in (row.k, row.v))
        if fitting is None:
            heavy = torch.arange(min(max(parts.sinks, 1), row.keys))
        else:
            reach = key_reach(k, self.basis, self.norms.max())
            heavy = heavy_keys(fitting.weights, reach, parts.heavy, parts.sinks)
        window = parts.window(row.visible.causal)
        return Head(self.q, k, v, int(row.offsets()[0]), window, heavy, self.basis, self.scratch)


def _attend_head(answer: _Answer, index: int, place: _Place, fit: torch.Tensor, deciding: torch.Tensor) -> None:
    """Answer a head that has queries and keys; the rows to fit on, and to decide on, are ascending."""
    row, live = place.row, seeing(place.row)
    if row.visible.causal:
        head = place.head(None)
        output, bad = attend(head, Far(head), PLAIN)
    else:
        output, bad = _fitted(answer.coefficients[index, place.number], place, fit, deciding)
    answer.output[index, place.number, : row.queries] = output
    answer.refused[index, place.number] = bad[live.start :].sum()


def _fitted(
    coefficients: torch.Tensor, place: _Place, fit: torch.Tensor, deciding: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with coefficients fitted to some rows, kept where others come out no worse.

    Returns:
        The output [R, dv], and which queries have no answer, [R] bool. What was fitted is put in `coefficients`.
    """
    outlying = outlying_queries(place.norms)
    audited = torch.cat([fit, deciding])
    rows = place.rows(torch.cat([audited, outlying]))
    fitting, answered = rows.select(slice(len(fit))), rows.select(slice(len(audited), None))
    head = place.head(fitting)
    far = Far(head)
    orders = Orders.of(head, far, audited, rows.select(slice(len(audited))))
    found = coefficients_of(*orders.split(len(fit)))
    coefficients[:] = torch.tensor(found)
    output, bad = attend(head, far, found)
    output[outlying], bad[outlying] = answered.output, False
    return output, bad
