"""From a decoded message to a checked verification: tensors, limits, parameters."""

from dataclasses import dataclass
from math import prod

import torch

from logitd.api.requests import named, only, order_asked
from logitd.api.schemas import check
from logitd.api.tensors import to_torch
from logitd.api.verify_params import RowParams, refuse_draw, row_params
from logitd.api.verify_schemas import VERIFY_SCHEMA, VerifyFields
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.verify_work import VerifyWork
from logitd.wire.message import Message
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.order import Order
from logitd_kernels.sampling.speculation import Speculation

_SHAPES = {"target_logits": "[rows, drafts + 1, vocab]", "draft_ids": "[rows, drafts]"}
_OVER_VOCAB = ("target_logits", "draft_probs", "draft_logits")


@dataclass(frozen=True)
class VerifyJob:
    """A checked request to verify; `draft_params` are None where those of the target act on both sides."""

    speculation: Speculation
    params: RowParams
    draft_params: RowParams | None
    fields: VerifyFields
    order: Order

    @property
    def work(self) -> VerifyWork:
        """What the engine is to compute."""
        drafts = None if self.draft_params is None else self.draft_params.each
        return VerifyWork(self.speculation, self.params.each, drafts, self.fields.method, self.order)

    def path_of(self, message: Message, error: ParameterError) -> str:
        """Return where the caller wrote a parameter that only its row showed to be impossible."""
        field = error.field.removeprefix("draft_params.")
        own = self.params if field == error.field or self.draft_params is None else self.draft_params
        return message.path(own.path(error.row, field))


def verify_job(message: Message, settings: Settings) -> VerifyJob:
    """Check a request against the registry and the limits.

    Raises:
        Invalid: naming the field, by the path at which the caller wrote it.
    """
    fields = check(VerifyFields, message.fields, message.path)
    only(message, tuple(VERIFY_SCHEMA))
    for name, shape in _SHAPES.items():
        if name not in message.tensors:
            raise Invalid.at(message.path(name), f"is required: {shape}")
    order = named(message, lambda: order_asked(fields.dialect, fields.order))
    _check_size(message, settings)
    speculation = named(message, lambda: Speculation(**_tensors(message, fields.vocab_size)))
    params = row_params(message, "params", fields.params, len(speculation))
    for row, own in enumerate(params.each):
        if own["n"] != 1:
            raise Invalid.at(message.path(params.path(row, "n")), f"must be 1: a row is verified once, got {own['n']}")
    drafts = _draft_params(message, fields.draft_params, speculation)
    edits = (speculation.drafts + 1) * (params.edits + (drafts or params).edits)
    if edits > settings.max_edits:
        raise Invalid.at(message.path("params"), f"at most {settings.max_edits} edits a request, got {edits}")
    return VerifyJob(speculation, params, drafts, fields, order)


def _check_size(message: Message, settings: Settings) -> None:
    shape = message.tensors["target_logits"].shape
    if len(shape) != 3:
        return  # refused with its shape
    rows, positions, vocab_size = shape
    path = message.path("target_logits")
    if rows * positions > settings.max_rows:
        raise Invalid.at(path, f"at most {settings.max_rows} rows × positions, got {rows} × {positions}")
    if vocab_size > settings.max_vocab_size:
        raise Invalid.at(path, f"at most {settings.max_vocab_size} logits at a position, got {vocab_size}")
    for name in ("prompt_ids", "output_ids"):
        ids = prod(message.tensors[name].shape) if name in message.tensors else 0
        if positions * ids > settings.max_history_ids:
            limit = settings.max_history_ids
            raise Invalid.at(message.path(name), f"at most {limit} ids × positions, got {ids} × {positions}")


def _tensors(message: Message, vocab_size: int | None) -> dict[str, torch.Tensor]:
    """Return the tensors, without the padding of those over the vocabulary."""
    tensors = {name: to_torch(tensor) for name, tensor in message.tensors.items()}
    if vocab_size is None:
        return tensors
    for name in _OVER_VOCAB:
        tensor = tensors.get(name)
        if tensor is None or tensor.ndim != 3 or not tensor.numel():
            continue
        if tensor.shape[2] < vocab_size:
            raise ParameterError("vocab_size", f"must be at most the {tensor.shape[2]} of {name}, got {vocab_size}")
        tensors[name] = tensor[:, :, :vocab_size]
    return tensors


def _draft_params(message: Message, sent: object, speculation: Speculation) -> RowParams | None:
    if sent is None:
        return None
    if speculation.draft_logits is None:
        raise Invalid.at(message.path("draft_params"), "goes with draft_logits, which are not there")
    refuse_draw(message, "draft_params", sent)
    return row_params(message, "draft_params", sent, len(speculation))
