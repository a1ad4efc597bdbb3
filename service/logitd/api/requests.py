"""From a decoded message to what the kernels take: rows, parameters, limits. One place checks a request's content."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from logitd.api.schemas import SampleFields, check
from logitd.api.tensors import to_torch
from logitd.errors import FieldError, Invalid
from logitd.plain_work import PlainWork
from logitd.settings import Settings
from logitd.wire.message import Message
from logitd.work import HeadWork, SampleWork
from logitd_kernels import PARAMETERS, DenseRows, HeadRows
from logitd_kernels import check as check_params
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError
from logitd_kernels.hot import PlainRows
from logitd_kernels.sampling.order import DEFAULT, Order, order_of
from logitd_kernels.sampling.parameters import TokenIds
from logitd_kernels.sampling.transform import Values

T = TypeVar("T")

_HEAD = ("head_ids", "head_logits", "log_z")
_HISTORY = ("prompt_ids", "output_ids")
_ONE = torch.ones(1)
_ID_LISTS = ("logit_bias", *(name for name, parameter in PARAMETERS.items() if isinstance(parameter, TokenIds)))
_MAX_TEMPERATURES = 64  # bounds on a tail are sought between any two of them
_HEAD_OPTIONS = ("log_z_temperatures", "head_finite_count")


@dataclass(frozen=True)
class SampleJob:
    """A checked sample request."""

    rows: DenseRows | HeadRows | PlainRows
    values: list[Values]
    shared: Values | None  # the parameters of all rows, when one object was sent
    fields: SampleFields
    order: Order = DEFAULT

    @property
    def work(self) -> SampleWork | HeadWork | PlainWork:
        """What the engine is to compute; the answers of a head form come as one."""
        asked = self.fields
        if isinstance(self.rows, PlainRows):
            return PlainWork(self.rows, self.values)
        if isinstance(self.rows, HeadRows):
            return HeadWork(self.rows, self.values, asked.logprobs, asked.logprobs_mode, asked.trace, self.order)
        return SampleWork(self.rows, self.values, asked.logprobs, asked.logprobs_mode, asked.trace, self.order)

    def path_of(self, message: Message, error: ParameterError) -> str:
        """Return where the caller wrote a parameter that only its row showed to be impossible."""
        params = "params" if self.shared is not None else f"params[{error.row}]"
        return message.path(f"{params}.{error.field}")


def sample_job(message: Message, settings: Settings) -> SampleJob:
    """Check a sample request against the registry and the limits.

    Raises:
        Invalid: naming the field, by the path at which the caller wrote it.
    """
    fields = check(SampleFields, _nested(message.fields) if message.form == "npy" else message.fields, message.path)
    order = named(message, lambda: order_asked(fields.dialect, fields.order))
    rows = named(message, lambda: _rows(message, fields, settings))
    _limit(message, "logprobs", fields.logprobs, settings.max_logprobs)
    shared, values = _values(message, fields.params, len(rows), settings)
    draws = sum(value["n"] for value in values)
    _limit(message, "params.n", draws, settings.max_draws, "draws a request")
    _limit(message, "logprobs", fields.logprobs * len(rows), settings.max_draws, "log-probabilities a request")
    _limit(message, "params", _edits(shared, values), settings.max_edits, "edits a request")
    return SampleJob(rows, values, shared, fields, order)


def named(message: Message, build: Callable[[], T]) -> T:
    """Run kernel-side checks, renaming what they refuse to the path at which the caller wrote it."""
    with Naming(message):
        return build()


class Naming:
    """Rename what the kernels refuse to the path at which the caller wrote it."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (ShapeError, ParameterError, NonFiniteTensor)):
            raise Invalid.at(self._message.path(error.field), error.message) from None


def order_asked(dialect: str, own: object) -> Order:
    """Return the order of a request.

    Raises:
        ParameterError: as `order_of`, or `order` is no list of names.
    """
    if own is None:
        return order_of(dialect)
    if not isinstance(own, list):
        raise ParameterError("order", f"expected a list of transforms, got {type(own).__name__}")
    for place, name in enumerate(own):
        if not isinstance(name, str):
            raise ParameterError(f"order[{place}]", f"expected the name of a transform, got {type(name).__name__}")
    return order_of(dialect, tuple(own))


def logits_of(message: Message, settings: Settings, wanted: str = "[rows, vocab]") -> torch.Tensor:
    """Return the whole rows of a message, no more and no longer than may be.

    Raises:
        Invalid: they are not there (`wanted` says what is), or beyond the limits.
    """
    if "logits" not in message.tensors:
        raise Invalid.at(message.path("logits"), f"is required: {wanted}")
    shape = message.tensors["logits"].shape
    if len(shape) == 2:
        _limit(message, "logits", shape[0], settings.max_rows, "rows")
        _limit(message, "logits", shape[1], settings.max_vocab_size, "logits a row")
    return to_torch(message.tensors["logits"])


def rows_of(message: Message) -> int:
    """Return how many rows a message seems to have, before anything of it is checked."""
    return max((tensor.shape[0] for tensor in message.tensors.values() if tensor.shape), default=0)


def _rows(message: Message, fields: SampleFields, settings: Settings) -> DenseRows | HeadRows:
    mask = to_torch(message.tensors["mask"]) if "mask" in message.tensors else None
    if mask is not None and mask.dtype == torch.int64 and message.form == "json":
        mask = _words(mask)
    heads = [name for name in (*_HEAD, *_HEAD_OPTIONS) if name in message.tensors]
    if not heads and ("logits" in message.tensors or fields.vocab_size is None):
        only(message, ("logits", "mask", *_HISTORY, "guidance_logits"))
        return _dense(message, mask, fields.vocab_size, settings)
    if "logits" in message.tensors:
        raise Invalid.at(message.path("logits"), "send either logits or the head form, not both")
    return _head(message, mask, fields, settings)


def _dense(message: Message, mask: torch.Tensor | None, vocab_size: int | None, settings: Settings) -> DenseRows:
    logits = logits_of(message, settings, "[rows, vocab], or the head form")
    guidance = _sent(message, "guidance_logits")
    if vocab_size is not None and logits.ndim == 2:
        if vocab_size > logits.shape[1]:
            path = "vocab_size" if message.form == "json" else message.path("vocab_size")  # no head in which it is
            raise Invalid.at(path, f"must be at most the {logits.shape[1]} logits of a row, got {vocab_size}")
        logits = logits[:, :vocab_size]  # the rest pads them
        mask = mask if mask is None or mask.ndim != 2 else mask[:, : -(-vocab_size // 32)]
        guidance = guidance if guidance is None or guidance.ndim != 2 else guidance[:, :vocab_size]
    return DenseRows(logits, mask, **_history(message, settings), guidance_logits=guidance)


def _history(message: Message, settings: Settings) -> dict[str, torch.Tensor]:
    sent = {name: to_torch(message.tensors[name]) for name in _HISTORY if name in message.tensors}
    for name, ids in sent.items():
        _limit(message, name, ids.numel(), settings.max_history_ids, "token ids a request")
    return sent


def _sent(message: Message, name: str) -> torch.Tensor | None:
    return to_torch(message.tensors[name]) if name in message.tensors else None


def _head(message: Message, mask: torch.Tensor | None, fields: SampleFields, settings: Settings) -> HeadRows:
    only(message, (*_HEAD, *_HEAD_OPTIONS, "mask", *_HISTORY))
    for name in _HEAD:
        if name not in message.tensors:
            raise Invalid.at(
                message.path(name), f"is required with the head form ({', '.join(map(message.path, _HEAD))})"
            )
    if fields.vocab_size is None:
        raise Invalid.at(message.path("vocab_size"), "is required with the head form")
    tensors = {name: to_torch(tensor) for name, tensor in message.tensors.items()}
    if tensors["head_logits"].ndim == 2:
        _limit(message, "head_logits", len(tensors["head_logits"]), settings.max_rows, "rows")
    _limit(message, "vocab_size", fields.vocab_size, settings.max_vocab_size)
    temperatures = tensors.get("log_z_temperatures", _ONE)
    if temperatures.ndim != 1 or not temperatures.dtype.is_floating_point:
        raise ShapeError("log_z_temperatures", f"expected a float tensor [K], got {list(temperatures.shape)}")
    _limit(message, "log_z_temperatures", len(temperatures), _MAX_TEMPERATURES)
    return HeadRows(
        ids=tensors["head_ids"],
        logits=tensors["head_logits"],
        log_z=tensors["log_z"],
        vocab_size=fields.vocab_size,
        temperatures=tuple(temperatures.double().tolist()),
        finite_count=tensors.get("head_finite_count"),
        mask=mask,
        **_history(message, settings),
    )


def _words(mask: torch.Tensor) -> torch.Tensor:
    """Return JSON integers as int32 words; the unsigned spelling of a word is accepted too."""
    if ((mask < -(1 << 31)) | (mask >= 1 << 32)).any():
        raise ShapeError("mask", "expected 32-bit words")
    return mask.to(torch.int32)


def _nested(query: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a query string, in which the sampling parameters stand beside the others."""
    fields = {name: value for name, value in query.items() if name in SampleFields.model_fields and name != "params"}
    return {**fields, "params": {name: value for name, value in query.items() if name not in fields}}


def _values(message: Message, sent: object, rows: int, settings: Settings) -> tuple[Values | None, list[Values]]:
    """Return the parameters shared by all rows, if one object was sent, and those of each row."""
    if not isinstance(sent, list):
        shared = _checked(message, sent, "params", settings)
        return shared, [shared] * rows
    if len(sent) != rows:
        raise Invalid.at("params", f"expected one object, or one for each of {rows} rows, got {len(sent)}")
    return None, [_checked(message, item, f"params[{row}]", settings) for row, item in enumerate(sent)]


def _edits(shared: Values | None, values: list[Values]) -> int:
    """Count the edits of a request: each list once, what is looked at for each row as often as there are rows."""
    lists = values if shared is None else [shared]
    ids = sum(len(one[name] or ()) for one in lists for name in _ID_LISTS)
    return ids + sum(len(one["logit_bias"] or ()) + sum(map(len, one["bad_words"] or ())) for one in values)


def _checked(message: Message, params: object, path: str, settings: Settings) -> Values:
    if not isinstance(params, dict):
        raise Invalid.at(path, f"expected an object of parameters, got {type(params).__name__}")
    try:
        values = check_params(params)
    except ParameterError as error:
        raise Invalid.at(message.path(f"{path}.{error.field[:60]}"), error.message) from None
    if values["n"] > settings.max_n:
        raise Invalid.at(message.path(f"{path}.n"), f"at most {settings.max_n}, got {values['n']}")
    return values


def only(message: Message, names: Sequence[str]) -> None:
    """Refuse tensors that the endpoint does not know.

    Raises:
        Invalid: naming the first.
    """
    for name in message.tensors:
        if name not in names:
            raise Invalid.at(
                message.path(name)[:80], f"unexpected tensor; expected {', '.join(map(message.path, names))}"
            )


def _limit(message: Message, field: str, value: int, limit: int, unit: str = "") -> None:
    if value > limit:
        fault = FieldError(message.path(field), f"at most {limit} {unit}".rstrip() + f", got {value}")
        raise Invalid(f"{fault.path}: {fault.message}", [fault])
