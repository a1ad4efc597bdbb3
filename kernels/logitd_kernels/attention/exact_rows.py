"""Exact attention of a few queries, with what their weights look like: the yardstick that an audit can afford."""

from dataclasses import dataclass, fields
from typing import Self

import torch

from logitd_kernels.attention.call import Call
from logitd_kernels.attention.parts import batch_row, overflows
from logitd_kernels.attention.sequences import dtype_of


@dataclass(frozen=True)
class ExactRows:
    """What exact attention says of some queries.

    Attributes:
        output: [B, Hq, R, dv], 0 for a query that sees no key.
        mean_v: [B, Hq, R, dv], the mean of the values that the query sees.
        entropy: [B, Hq, R] of the weights, nats.
        max_prob: [B, Hq, R], the largest weight.
        seen: [B, Hq, R] int64, how many keys the query sees; what lies past a sequence's queries sees none.
    """

    output: torch.Tensor
    mean_v: torch.Tensor
    entropy: torch.Tensor
    max_prob: torch.Tensor
    seen: torch.Tensor

    @classmethod
    def blank(cls, call: Call, rows: int) -> Self:
        """Return zeros for some queries of every head."""
        shape, dtype = (call.batch, call.heads, rows), dtype_of(call)
        output, mean_v = (torch.zeros(*shape, call.v.shape[3], dtype=dtype) for _ in range(2))
        entropy, max_prob = (torch.zeros(shape, dtype=dtype) for _ in range(2))
        return cls(output, mean_v, entropy, max_prob, torch.zeros(shape, dtype=torch.int64))

    def select(self, rows: slice | torch.Tensor) -> Self:
        """Return some of the queries."""
        return type(self)(*(getattr(self, field.name)[:, :, rows] for field in fields(self)))


@dataclass(frozen=True)
class HeadRows:
    """Some queries of one head.

    Attributes:
        total: [R, 1], the log of the normaliser.
        weights: [R, n], 0 where not seen.
        seen: [R, n] bool; None where all is seen.
        output: [R, dv].
    """

    total: torch.Tensor
    weights: torch.Tensor
    seen: torch.Tensor | None
    output: torch.Tensor

    def select(self, rows: slice) -> "HeadRows":
        """Return some of the queries."""
        seen = None if self.seen is None else self.seen[rows]
        return HeadRows(self.total[rows], self.weights[rows], seen, self.output[rows])

    def to(self, dtype: torch.dtype) -> "HeadRows":
        """Return them in another dtype."""
        return HeadRows(self.total.to(dtype), self.weights.to(dtype), self.seen, self.output.to(dtype))

    def put(self, found: ExactRows, batch: int, head: int, values: torch.Tensor) -> None:
        """Write them, and the mean of the values [n, dv] that each sees, where that head's first queries stand."""
        place = (batch, head, slice(len(self.output)))
        found.output[place], found.mean_v[place] = self.output, self._mean(values.to(found.mean_v.dtype))
        positive = self.weights.clamp(min=torch.finfo(self.weights.dtype).tiny)
        found.entropy[place] = -torch.linalg.vecdot(self.weights, positive.log_()).clamp(max=0)
        found.max_prob[place] = torch.nn.functional.pad(self.weights, (0, 1)).amax(1)
        found.seen[place] = self.weights.shape[1] if self.seen is None else self.seen.sum(1)

    def _mean(self, values: torch.Tensor) -> torch.Tensor:
        """Weigh values [n, dv] by shares rather than add them up: a sum might pass float32."""
        if self.seen is None:
            return values.new_full((1, len(values)), 1 / max(len(values), 1)) @ values
        values = values.masked_fill(~self.seen.any(0)[:, None], 0)
        return (self.seen / self.seen.sum(1).clamp(min=1)[:, None]).to(values.dtype) @ values


@torch.no_grad()
def exact_rows(call: Call, rows: torch.Tensor) -> ExactRows:
    """Attend with some queries alone, one head at a time: O(R · Lk · (d + dv)) work, O(R · Lk) memory.

    Args:
        call: any call: masks, windows, sinks, softcap, lengths and GQA are kept.
        rows: [R] int64, ascending indices of queries.
    Returns:
        Everything float32 (float64 for float64).
    """
    found = ExactRows.blank(call, len(rows))
    for index in range(call.batch):
        row = batch_row(call, index)
        for head in range(call.heads):
            head_rows(row, head, rows[rows < row.queries]).put(found, index, head, row.v[0, head // row.group])
    return found


def head_rows(row: Call, head: int, rows: torch.Tensor) -> HeadRows:
    """Attend with some queries of one head of a call of one batch row, as `batch_row` gives it.

    Float64 serves where `exact` takes it: where float32 might not hold scores or sums.
    """
    q, k, v = row.q[0, head, rows], row.k[0, head // row.group], row.v[0, head // row.group]
    dtype = torch.float64 if overflows(row, q, k, v) else dtype_of(row)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    scores = (q * row.scaling) @ k.T
    if row.softcap is not None:
        scores = row.softcap * torch.tanh(scores / row.softcap)
    seen, bias = _seen(row, head, rows)
    if bias is not None:
        scores = scores + bias.to(dtype)
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
        v = v.masked_fill(~seen.any(0)[:, None], 0)  # what no query may look at is not read, NaN or not
    total = _softmax_(scores, None if row.sink_logits is None else row.sink_logits[head])
    return HeadRows(total, scores, seen, scores @ v).to(dtype_of(row))


def _softmax_(scores: torch.Tensor, sink: torch.Tensor | None) -> torch.Tensor:
    """Make weights of scores [R, n], in place; return log normalisers [R, 1], −inf where nothing is seen."""
    limits = torch.finfo(scores.dtype)
    largest = scores.amax(1, keepdim=True) if scores.shape[1] else scores.new_full((len(scores), 1), -torch.inf)
    if sink is not None:
        largest = largest.clamp(min=sink.to(scores.dtype))
    largest = largest.clamp(min=limits.min)
    mass = scores.sub_(largest).exp_().sum(1, keepdim=True)
    if sink is not None:
        mass += torch.exp(sink.to(scores.dtype) - largest)
    scores /= mass.clamp(min=limits.tiny)
    return largest + mass.log()


def _seen(row: Call, head: int, rows: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return which keys the queries see, [R, n] bool or None for all, and the bias of the mask, [R, n] or None."""
    if row.visible.structured and not row.visible.causal:
        return None, None
    columns = torch.arange(row.keys)
    seen, bias = row.seen(rows, columns)[0, 0], row.bias(rows, columns)
    if bias is None:
        return seen, None
    bias = bias[0, head if bias.shape[1] > 1 else 0].expand(len(rows), row.keys)
    return seen & (bias != -torch.inf), bias
