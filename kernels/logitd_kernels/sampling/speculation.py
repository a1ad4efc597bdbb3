"""What a verification is about: draft tokens, the target's logits around them, and what is known of the draft model."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

from logitd_kernels.errors import DtypeError, ParameterError, ShapeError
from logitd_kernels.rows import DTYPES, DenseRows

_INDEX_DTYPES = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Speculation:
    """Rows of draft tokens to verify, checked once.

    Args:
        target_logits: [B, n + 1, V] float32, float16, bfloat16 or float64 on the CPU: of the target model before each
            draft token, and after the last.
        draft_ids: [B, n] int32 or int64; −1 is no token, and ends the draft of its row.
        draft_probs: [B, n, V] float: the distributions that the tokens were drawn from; or
        draft_logits: [B, n, V] float: the logits behind them; or neither: the draft was deterministic.
        draft_lengths: [B] int, how many draft tokens each row has; by default up to its first −1.
        prompt_ids: [B, L] int, the tokens before the generated ones, padded with −1; or None.
        output_ids: the same for the tokens generated before the draft.
    Raises:
        ShapeError, DtypeError, ParameterError: naming the tensor, and of ids and lengths the element.
    """

    target_logits: torch.Tensor
    draft_ids: torch.Tensor
    draft_probs: torch.Tensor | None = None
    draft_logits: torch.Tensor | None = None
    draft_lengths: torch.Tensor | None = None
    prompt_ids: torch.Tensor | None = None
    output_ids: torch.Tensor | None = None

    def __post_init__(self) -> None:
        _check("target_logits", self.target_logits, DTYPES, 3, "[rows, drafts + 1, vocab]")
        _check("draft_ids", self.draft_ids, _INDEX_DTYPES, 2, "[rows, drafts]")
        rows, drafts = self.draft_ids.shape
        if rows:
            self._check_target(rows, drafts)
        elif len(self.target_logits):
            raise ShapeError("draft_ids", f"expected {len(self.target_logits)} rows as in target_logits, got 0")
        if self.draft_probs is not None and self.draft_logits is not None:
            raise ShapeError("draft_logits", "send either draft_probs or draft_logits, not both")
        self._check_draft("draft_probs", self.draft_probs)
        self._check_draft("draft_logits", self.draft_logits)
        self._check_ids("draft_ids", self.draft_ids)
        self._check_lengths()
        self._check_sequence("prompt_ids", self.prompt_ids)
        self._check_sequence("output_ids", self.output_ids)

    def __len__(self) -> int:
        return len(self.draft_ids)

    @property
    def drafts(self) -> int:
        """The most draft tokens of a row, n."""
        return self.draft_ids.shape[1]

    @property
    def vocab_size(self) -> int:
        """The number of logits at a position, V."""
        return self.target_logits.shape[2]

    @property
    def row_bytes(self) -> int:
        """Of the logits and probabilities of a row."""
        floats = (self.target_logits, self.draft_probs, self.draft_logits)
        return sum(t[0].numel() * t.element_size() for t in floats if t is not None and len(t))

    def part(self, start: int, stop: int) -> "Speculation":
        """Return some of the rows."""
        tensors: dict[str, torch.Tensor | None] = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: t[start:stop] for name, t in tensors.items() if t is not None})

    def ids(self, row: int) -> list[int]:
        """Return the draft tokens of a row, up to its length or its first −1."""
        ids: list[int] = self.draft_ids[row].tolist()
        if self.draft_lengths is not None:
            ids = ids[: int(self.draft_lengths[row])]
        return ids[: ids.index(-1)] if -1 in ids else ids

    def positions(self, logits: torch.Tensor, row: int, ids: Sequence[int], count: int) -> DenseRows:
        """Return the first positions of a row as rows of their own, each with the sequence up to it.

        Args:
            logits: [B, ≥ count, V], `target_logits` or `draft_logits`.
            row: which of them.
            ids: its draft tokens.
            count: how many positions; at most one more than there are of these.
        """
        if self.prompt_ids is None and self.output_ids is None:
            return DenseRows(logits[row, :count])
        draft = torch.tensor(ids[: count - 1], dtype=torch.int64)
        so_far = torch.arange(count)[:, None] > torch.arange(len(draft))  # [count, draft]
        output = torch.where(so_far, draft, -1)
        if self.output_ids is not None:
            output = torch.cat([self.output_ids[row].long().expand(count, -1), output], 1)
        prompt = None if self.prompt_ids is None else self.prompt_ids[row].expand(count, -1)
        return DenseRows(logits[row, :count], prompt_ids=prompt, output_ids=output)

    def _check_target(self, rows: int, drafts: int) -> None:
        shape = list(self.target_logits.shape)
        if shape[:2] != [rows, drafts + 1]:
            raise ShapeError(
                "target_logits",
                f"expected [{rows}, {drafts + 1}, vocab] beside draft_ids {[rows, drafts]}, got {shape}",
            )
        if not shape[2]:
            raise ShapeError("target_logits", f"expected at least one logit at a position, got shape {shape}")

    def _check_draft(self, name: str, tensor: torch.Tensor | None) -> None:
        if tensor is None:
            return
        _check(name, tensor, DTYPES, 3, "[rows, drafts, vocab]")
        expected, shape = [len(self), self.drafts, self.vocab_size], list(tensor.shape)
        # Of an empty axis, nested lists cannot say what was to be in it.
        known = 1 if not len(self) else 2 if not self.drafts else 3
        if shape[:known] != expected[:known]:
            raise ShapeError(name, f"expected shape {expected} = [rows, drafts, vocab], got {shape}")

    def _check_ids(self, name: str, ids: torch.Tensor) -> None:
        outside = (ids < -1) | (ids >= self.vocab_size)
        if outside.any():
            row, place = outside.nonzero()[0].tolist()
            token = int(ids[row, place])
            raise ParameterError(
                f"{name}[{row}][{place}]", f"must be -1 or a token id in [0, {self.vocab_size}), got {token}"
            )

    def _check_sequence(self, name: str, ids: torch.Tensor | None) -> None:
        if ids is None:
            return
        _check(name, ids, _INDEX_DTYPES, 2, "[rows, tokens]")
        if len(ids) != len(self):
            raise ShapeError(name, f"expected {len(self)} rows, got {len(ids)}")
        self._check_ids(name, ids)

    def _check_lengths(self) -> None:
        if self.draft_lengths is None:
            return
        _check("draft_lengths", self.draft_lengths, _INDEX_DTYPES, 1, "[rows]")
        if len(self.draft_lengths) != len(self):
            raise ShapeError("draft_lengths", f"expected {len(self)} numbers, got {len(self.draft_lengths)}")
        outside = (self.draft_lengths < 0) | (self.draft_lengths > self.drafts)
        if outside.any():
            row = int(outside.nonzero()[0])
            raise ParameterError(
                f"draft_lengths[{row}]", f"must be in [0, {self.drafts}], got {int(self.draft_lengths[row])}"
            )


def _check(name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], rank: int, axes: str) -> None:
    if tensor.dtype not in dtypes:
        allowed = ", ".join(map(_name, dtypes))
        raise DtypeError(name, f"expected one of {allowed}, got {_name(tensor.dtype)}")
    if tensor.device.type != "cpu":
        raise DtypeError(name, f"expected a tensor on the CPU, got one on {tensor.device}")
    if tensor.ndim != rank:
        raise ShapeError(name, f"expected {rank} dimensions {axes}, got shape {list(tensor.shape)}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
