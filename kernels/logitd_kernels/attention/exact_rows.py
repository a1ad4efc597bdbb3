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
        entropy: [R].
        mean_v: [R, dv].
    """

    total: torch.Tensor
    weights: torch.Tensor
    seen: torch.Tensor | None
    output: torch.Tensor
    entropy: torch.Tensor
    mean_v: torch.Tensor

    def select(self, rows: slice) -> "HeadRows":
        """Return some of the queries."""
        seen = None if self.seen is None else self.seen[rows]
        return HeadRows(
            self.total[rows], self.weights[rows], seen, self.output[rows], self.entropy[rows], self.mean_v[rows]
        )

    def to(self, dtype: torch.dtype) -> "HeadRows":
        """Return them in another dtype."""
        total, weights, output, entropy, mean_v = (
            x.to(dtype) for x in (self.total, self.weights, self.output, self.entropy, self.mean_v)
        )
        return HeadRows(total, weights, self.seen, output, entropy, mean_v)

    def put(self, found: ExactRows, batch: int, head: int) -> None:
        """Write them where the first queries of that head stand."""
        place = (batch, head, slice(len(self.output)))
        found.output[place], found.mean_v[place], found.entropy[place] = self.output, self.mean_v, self.entropy
        found.max_prob[place] = torch.nn.functional.pad(self.weights, (0, 1)).amax(1)
        found.seen[place] = self.weights.shape[1] if self.seen is None else self.seen.sum(1)


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
            head_rows(row, head, rows[rows < row.queries]).put(found, index, head)
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
    total, weights, entropy = _softmax(scores, None if row.sink_logits is None else row.sink_logits[head], seen)
    found = HeadRows(total, weights, seen, weights @ v, entropy, _mean(v, seen, len(rows)))
    return found.to(dtype_of(row))


def _softmax(
    scores: torch.Tensor, sink: torch.Tensor | None, seen: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log normalisers [R, 1], weights [R, n] and their entropy [R], in few passes; scores are used up."""
    limits = torch.finfo(scores.dtype)
    largest = scores.amax(1, keepdim=True) if scores.shape[1] else scores.new_full((len(scores), 1), -torch.inf)
    if sink is not None:
        largest = largest.clamp(min=sink.to(scores.dtype))
    largest = largest.clamp(min=limits.min)  # −inf where nothing is seen
    scores -= largest
    weights = torch.exp(scores)
    mass = weights.sum(1, keepdim=True)
    if sink is not None:
        mass += torch.exp(sink.to(scores.dtype) - largest)
    positive = mass.clamp(min=limits.tiny)
    weights /= positive
    if seen is not None:
        scores.clamp_(min=limits.min)  # 0 · −inf
    mean = torch.bmm(weights[:, None], scores[..., None])[:, 0, 0]
    entropy = weights.sum(1) * positive.log()[:, 0] - mean
    return largest + mass.log(), weights, entropy.clamp(min=0)


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


def _mean(v: torch.Tensor, seen: torch.Tensor | None, rows: int) -> torch.Tensor:
    if seen is None:
        return v.sum(0).div(max(len(v), 1)).expand(rows, -1)
    return seen.to(v.dtype) @ v / seen.sum(1).clamp(min=1)[:, None]
