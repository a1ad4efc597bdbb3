"""The rows a caller sends, validated once: dense logits or the head form, and what else is known of each row."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from logitd_kernels.errors import BadRow, DtypeError, HeadError, ParameterError, ShapeError
from logitd_kernels.head import Floats, Ids
from logitd_kernels.native import module as _native

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_INDEX_DTYPES = (torch.int32, torch.int64)


@dataclass(frozen=True)
class DenseRows:
    """Rows of logits over the whole vocabulary.

    Args:
        logits: [B, V] float32, float16, bfloat16 or float64 on the CPU, any strides; never written to. −inf is a mask.
        mask: [B, ⌈V/32⌉] int32, least significant bit first, 1 = allowed (xgrammar's layout), or None.
        prompt_ids: [B, L] int32 or int64, the tokens before the generated ones, padded with −1; or None.
        output_ids: the same for the tokens generated so far.
        guidance_logits: [B, V] as logits, of the same rows without what guides them; or None.
    Raises:
        ShapeError, DtypeError, ParameterError.
    """

    logits: torch.Tensor
    mask: torch.Tensor | None = None
    prompt_ids: torch.Tensor | None = None
    output_ids: torch.Tensor | None = None
    guidance_logits: torch.Tensor | None = None

    def __post_init__(self) -> None:
        _check_floats("logits", self.logits, "[rows, vocab]")
        _without_gradient(self, "logits")
        if self.logits.shape[1] == 0 < len(self):
            raise ShapeError("logits", f"expected at least one logit a row, got shape {list(self.logits.shape)}")
        _check_beside(self)
        if self.guidance_logits is not None:
            _check_floats("guidance_logits", self.guidance_logits, "[rows, vocab]")
            _without_gradient(self, "guidance_logits")
            if self.guidance_logits.shape != self.logits.shape:
                expected, shape = list(self.logits.shape), list(self.guidance_logits.shape)
                raise ShapeError("guidance_logits", f"expected shape {expected} as logits, got {shape}")

    def __len__(self) -> int:
        return self.logits.shape[0]

    @property
    def vocab_size(self) -> int:
        """V, the number of logits in a row."""
        return self.logits.shape[1]

    def part(self, start: int, stop: int) -> "DenseRows":
        """Return some of the rows, with what else is known of them."""
        others = (self.mask, self.prompt_ids, self.output_ids, self.guidance_logits)
        return DenseRows(self.logits[start:stop], *(None if one is None else one[start:stop] for one in others))

    def row(self, index: int) -> torch.Tensor:
        """Return a contiguous copy of one row, float16 and bfloat16 widened to float32, which loses nothing.

        Raises:
            BadRow: the row holds NaN or +inf (`non_finite`), or only −inf (`all_masked`).
        """
        row = self.logits[index]
        _check_finite(row)
        return row.to(torch.float64 if row.dtype == torch.float64 else torch.float32, copy=True).contiguous()


@dataclass(frozen=True)
class HeadRows:
    """Rows of which only the head was sent: the N largest logits in the total order, and log Z of the whole row.

    Args:
        ids: [B, N] int32 or int64, distinct in a row.
        logits: [B, N] float, in the total order (logit descending, token id ascending).
        log_z: [B] (at T = 1) or [B, K], float32 or float64: log Σ e^(x/T) over the whole row at each of `temperatures`.
        vocab_size: V, at least N.
        temperatures: the K temperatures of `log_z`, each finite and > 0.
        finite_count: [B] int, how many logits of the row are not −inf; None when the caller does not know.
        mask, prompt_ids, output_ids: as for `DenseRows`.
    Raises:
        ShapeError, DtypeError, HeadError, ParameterError.
    """

    ids: torch.Tensor
    logits: torch.Tensor
    log_z: torch.Tensor
    vocab_size: int
    temperatures: tuple[float, ...] = (1.0,)
    finite_count: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    prompt_ids: torch.Tensor | None = None
    output_ids: torch.Tensor | None = None
    log_z_of_each: torch.Tensor = field(init=False, repr=False)  # [B, K]

    def __post_init__(self) -> None:
        _check_floats("head_logits", self.logits, "[rows, head]")
        _without_gradient(self, "logits", "log_z")
        _check_index("head_ids", self.ids, list(self.logits.shape), "as head_logits")
        if self.logits.shape[1] == 0 < len(self):
            raise ShapeError("head_logits", "expected at least one logit a row, got none")
        if self.vocab_size < self.logits.shape[1]:
            raise ParameterError(
                "vocab_size", f"must be at least the head's {self.logits.shape[1]}, got {self.vocab_size}"
            )
        _check_beside(self)
        object.__setattr__(self, "log_z_of_each", self._checked_log_z())
        if self.finite_count is not None:
            _check_index("head_finite_count", self.finite_count, [len(self)], "[rows]")
        for row in range(self._first_suspect(), len(self)):
            self._check_order(row)

    def __len__(self) -> int:
        return self.logits.shape[0]

    def row(self, index: int) -> "HeadOfRow":
        """Return one row's head in float64.

        Raises:
            BadRow: the head holds NaN or +inf (`non_finite`), or only −inf (`all_masked`).
        """
        logits = self.logits[index]
        _check_finite(logits, self.ids[index])
        sent = logits.double().numpy()
        finite = sent > -np.inf
        # A head that reaches into the −inf of its row holds every finite logit.
        known = int(finite.sum()) if not finite.all() else None
        if known is None and self.finite_count is not None:
            known = int(self.finite_count[index])
            if not int(finite.sum()) <= known <= self.vocab_size:
                raise HeadError(f"head_finite_count[{index}]", f"must lie between the head's size and V, got {known}")
        return HeadOfRow(
            ids=self.ids[index].long().numpy()[finite],
            logits=sent[finite],
            log_z=self.log_z_of_each[index].double().numpy(),
            log_z_is_float32=self.log_z_of_each.dtype != torch.float64,
            temperatures=self.temperatures,
            vocab_size=self.vocab_size,
            finite_count=known,
            row=index,
        )

    def _checked_log_z(self) -> torch.Tensor:
        for place, temperature in enumerate(self.temperatures):
            if not 0 < temperature < float("inf"):
                raise ParameterError(f"log_z_temperatures[{place}]", f"must be finite and > 0, got {temperature}")
        if self.log_z.dtype not in (torch.float32, torch.float64):  # a half would bound nothing
            raise DtypeError("log_z", f"expected float32 or float64, got {_name(self.log_z.dtype)}")
        columns = len(self.temperatures)
        expected = [[len(self), columns]] + ([[len(self)]] if columns == 1 else [])
        if list(self.log_z.shape) not in expected:
            raise ShapeError("log_z", f"expected shape {' or '.join(map(str, expected))}, got {list(self.log_z.shape)}")
        return self.log_z if self.log_z.ndim == 2 else self.log_z[:, None]

    def _first_suspect(self) -> int:
        """Return the first row that `_check_order` has to look at: where the compiled check found something, or all."""
        if _native is None:
            return 0
        logits = self.logits if self.logits.element_size() > 2 else self.logits.float()
        rows, size = logits.shape
        vocab_size = min(self.vocab_size, 1 << 62)
        return int(_native.first_suspect(rows, size, vocab_size, numbers_at(logits), numbers_at(self.ids)))

    def _check_order(self, row: int) -> None:
        ids, logits = self.ids[row].long().numpy(), self.logits[row].double().numpy()
        if np.isnan(logits).any():
            return  # the row itself is bad: answered with an error of its own
        outside = np.flatnonzero((ids < 0) | (ids >= self.vocab_size))
        if len(outside):
            place = int(outside[0])
            raise HeadError(f"head_ids[{row}][{place}]", f"must be in [0, {self.vocab_size}), got {ids[place]}")
        if len(np.unique(ids)) != len(ids):
            raise HeadError(f"head_ids[{row}]", "holds a token id twice")
        falls = logits[1:] < logits[:-1]
        ties = (logits[1:] == logits[:-1]) & ((ids[1:] > ids[:-1]) | np.isneginf(logits[1:]))
        wrong = np.flatnonzero(~(falls | ties))
        if len(wrong):
            place = int(wrong[0]) + 1
            raise HeadError(
                f"head_logits[{row}][{place}]", "breaks the total order (logit descending, token id ascending)"
            )


@dataclass(frozen=True)
class HeadOfRow:
    """One row of `HeadRows`: the finite part of its head, in float64, and what is known of the rest.

    `finite_count` is the number of finite logits in the whole row, None when unknown.
    """

    ids: Ids
    logits: Floats
    log_z: Floats
    log_z_is_float32: bool
    temperatures: tuple[float, ...]
    vocab_size: int
    finite_count: int | None
    row: int


Rows = DenseRows | HeadRows


def beside(rows: Rows, index: int) -> dict[str, NDArray[Any]]:
    """Return what else is known of one row, by the names of the tensors: what is not there was not sent.

    `mask` [V] booleans, `prompt_ids` and `output_ids` [N] int64 without the padding, `guidance_logits` [V] float64.
    """
    found: dict[str, NDArray[Any]] = {}
    if rows.mask is not None:
        found["mask"] = unpack_mask(rows.mask[index], rows.vocab_size)
    for name in ("prompt_ids", "output_ids"):
        ids: torch.Tensor | None = getattr(rows, name)
        if ids is not None:
            own = ids[index].numpy().astype(np.int64)
            found[name] = own[own >= 0]
    if isinstance(rows, DenseRows) and rows.guidance_logits is not None:
        found["guidance_logits"] = rows.guidance_logits[index].double().numpy()
    return found


def is_alone(rows: Rows) -> bool:
    """Whether nothing but its logits is known of any row."""
    return all(getattr(rows, name, None) is None for name in ("mask", "prompt_ids", "output_ids", "guidance_logits"))


def numbers_at(matrix: torch.Tensor) -> tuple[int, int, int, int]:
    """Return where compiled kernels find a matrix: address, bytes of a number, and both strides in numbers."""
    row_stride, stride = matrix.stride()
    return matrix.data_ptr(), matrix.element_size(), row_stride, stride


def unpack_mask(words: torch.Tensor, vocab_size: int) -> NDArray[np.bool_]:
    """Return the [V] booleans of one row of a packed bitmask, [⌈V/32⌉] int32, least significant bit first."""
    packed = np.ascontiguousarray(words.numpy()).astype("<i4", copy=False).view(np.uint8)
    return np.unpackbits(packed, bitorder="little", count=vocab_size).view(np.bool_)


def _check_finite(row: torch.Tensor, ids: torch.Tensor | None = None) -> None:
    """Refuse a row with NaN or +inf, naming the first, or with nothing finite; one max finds all three."""
    if len(row) == 0:
        return
    largest = float(row.max())
    if largest == -np.inf:
        raise BadRow.all_masked("every logit is -inf")
    if largest < np.inf:
        return
    values = row.double().numpy()
    place = int(np.flatnonzero(~(values < np.inf))[0])
    kind = "nan" if np.isnan(values).any() else "posinf"
    raise BadRow.non_finite(place if ids is None else int(ids[place]), float(values[place]), kind)


def _without_gradient(rows: object, *names: str) -> None:
    """Let go of the graphs that tensors hang on: nothing here is differentiated."""
    for name in names:
        tensor: torch.Tensor = getattr(rows, name)
        if tensor.requires_grad:
            object.__setattr__(rows, name, tensor.detach())


def _check_floats(name: str, tensor: torch.Tensor, axes: str) -> None:
    if tensor.dtype not in DTYPES:
        allowed = ", ".join(_name(dtype) for dtype in DTYPES)
        raise DtypeError(name, f"expected one of {allowed}, got {_name(tensor.dtype)}")
    _check_here(name, tensor)
    if tensor.ndim != 2:
        raise ShapeError(name, f"expected two dimensions {axes}, got shape {list(tensor.shape)}")


def _check_here(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":  # compiled kernels read its memory
        raise DtypeError(name, f"expected a tensor on the CPU, got one on {tensor.device}")


def _check_index(name: str, tensor: torch.Tensor, shape: list[int], axes: str) -> None:
    if tensor.dtype not in _INDEX_DTYPES:
        raise DtypeError(name, f"expected int32 or int64, got {_name(tensor.dtype)}")
    _check_here(name, tensor)
    if list(tensor.shape) != shape:
        raise ShapeError(name, f"expected shape {shape} {axes}, got {list(tensor.shape)}")


def _check_beside(rows: Rows) -> None:
    _check_mask(rows.mask, len(rows), rows.vocab_size)
    for name in ("prompt_ids", "output_ids"):
        ids: torch.Tensor | None = getattr(rows, name)
        if ids is None:
            continue
        if ids.ndim != 2:
            raise ShapeError(name, f"expected two dimensions [rows, tokens], got shape {list(ids.shape)}")
        _check_index(name, ids, [len(rows), ids.shape[1]], "[rows, tokens]")
        if ids.numel() and not -1 <= int(ids.min()) <= int(ids.max()) < rows.vocab_size:
            row, place = (int(axis[0]) for axis in torch.nonzero((ids < -1) | (ids >= rows.vocab_size), as_tuple=True))
            bounds = f"must be in [0, {rows.vocab_size}), or -1 for none"
            raise ParameterError(f"{name}[{row}][{place}]", f"{bounds}, got {int(ids[row, place])}")


def _check_mask(mask: torch.Tensor | None, rows: int, vocab_size: int) -> None:
    if mask is None:
        return
    if mask.dtype != torch.int32:
        raise DtypeError("mask", f"expected int32, got {_name(mask.dtype)}")
    _check_here("mask", mask)
    if list(mask.shape) != [rows, -(-vocab_size // 32)]:
        expected = [rows, -(-vocab_size // 32)]
        raise ShapeError("mask", f"expected shape {expected} = [rows, ⌈vocab/32⌉], got {list(mask.shape)}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
